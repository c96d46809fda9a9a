"""The corpus: its form, how it is made again, and how it finds wrong values."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import FileFormatError
from pjrt_hub.kit.conformance import corpus
from pjrt_hub.kit.conformance.checks import ops
from pjrt_hub.kit.conformance.corpus import CorpusTensor, Program
from pjrt_hub.kit.conformance.finding import Failed, Unsupported
from pjrt_hub.kit.conformance.subject import Subject

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "tools" / "corpus"
#: They are few enough to be quick, and need all kinds of oracles and of comparisons.
SAMPLE = ("add", "convert", "fft", "iota", "pad", "reduce", "rng_bit_generator", "sort", "tanh")


@pytest.fixture(scope="module")
def generator():
    sys.path.insert(0, str(GENERATOR))
    yield pytest.importorskip("generation", exc_type=ModuleNotFoundError)
    sys.path.remove(str(GENERATOR))


@pytest.fixture(scope="module")
def by_name():
    return {each.name: each for each in corpus.programs()}


@pytest.fixture
def subject():
    subject = Subject(Path(pjrt_hub.fetch("cpu", offline=True)), {})
    yield subject
    subject.end_check()


def rows(programs) -> list[str]:
    return gzip.decompress(corpus.pack(programs)).decode().splitlines()[1:]


def test_it_is_large_and_its_names_differ(by_name):
    assert len(by_name) == len(corpus.programs()) > 1900
    assert len({each.op for each in by_name.values()}) > 100
    elements = {tensor.element for each in by_name.values() for tensor in each.results}
    assert len(elements) == 30


def test_most_programs_have_two_oracles_that_agreed():
    counted = Counter(len(each.oracle) for each in corpus.programs())
    assert counted[2] > 0.9 * counted.total()
    assert {each.op for each in corpus.programs() if not each.oracle} == {"rng_bit_generator"}


def test_a_sample_is_made_again_byte_by_byte(generator):
    made, quarrels = generator.generate(SAMPLE)
    assert quarrels == []
    assert rows(made) == rows(each for each in corpus.programs() if each.op in SAMPLE)


def test_every_op_of_the_dialect_has_a_program_or_a_reason(generator):
    import page
    from jaxlib.mlir.dialects import _stablehlo_ops_gen as dialect

    names = {
        each.OPERATION_NAME.removeprefix("stablehlo.")
        for each in vars(dialect).values()
        if hasattr(each, "OPERATION_NAME")
    }
    left_out = {name for each in page.LEFT_OUT for name in each.split(", ")}
    assert {each.op for each in corpus.programs()} | left_out == names


def test_the_page_is_current(generator):
    import page

    hint = "run `python tools/corpus`"
    assert (ROOT / "docs" / "ops.md").read_text() == page.text(corpus.programs()), hint


def test_a_disagreement_of_oracles_is_no_program(generator):
    from draft import Disagreement, draft
    from interpreter import Interpreter

    one = CorpusTensor.of([1.0], "f32")
    wrong = draft("negate", "f32", [one], [one])
    refused = pytest.raises(Disagreement, match=r"expected 1\.0, found -1\.0")
    with Interpreter() as interpreter, refused:
        wrong.settle(interpreter)


def program(**fields) -> Program:
    given, negated = (CorpusTensor.of(each, "f32") for each in ([1.5, -2.0], [-1.5, 2.0]))
    body = '%r0 = "stablehlo.negate"(%a0) : (tensor<2xf32>) -> tensor<2xf32>'
    made = Program("negate", "f32", "", body, (given,), (negated,), ("exact",))
    return replace(made, **fields)


def test_a_program_as_text():
    assert program().text(constants=False) == (
        "func.func @main(%a0: tensor<2xf32>) -> (tensor<2xf32>) {\n"
        '  %r0 = "stablehlo.negate"(%a0) : (tensor<2xf32>) -> tensor<2xf32>\n'
        "  return %r0 : tensor<2xf32>\n}\n"
    )
    assert program().text(constants=True) == (
        "func.func @main() -> (tensor<2xf32>) {\n"
        '  %a0 = stablehlo.constant dense<"0x0000C03F000000C0"> : tensor<2xf32>\n'
        '  %r0 = "stablehlo.negate"(%a0) : (tensor<2xf32>) -> tensor<2xf32>\n'
        "  return %r0 : tensor<2xf32>\n}\n"
    )


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (CorpusTensor.of([[True, False]], "i1"), "dense<[[true, false]]> : tensor<1x2xi1>"),
        (CorpusTensor.of(np.zeros((0, 3)), "f32"), "dense<> : tensor<0x3xf32>"),
        (CorpusTensor.of(np.int32(7), "i32"), 'dense<"0x07000000"> : tensor<i32>'),
        (
            CorpusTensor.of([1, 2], "complex<f32>"),
            'dense<"0x0000803F000000000000004000000000"> : tensor<2xcomplex<f32>>',
        ),
    ],
)
def test_a_tensor_as_text(tensor, text):
    assert tensor.literal == text


def test_it_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "corpus.jsonl.gz"
    written = (program(variant="by the way", terms=3), program(compare=corpus.ANYTHING))
    path.write_bytes(corpus.pack(written))
    assert corpus.programs(path) == written
    assert written[0].name == "negate.f32.by-the-way"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda head, row: (head | {"form": 2}, row), "form"),
        (lambda head, row: (head | {"programs": 2}, row), "1 programs after it"),
        (lambda head, row: (head, row | {"sort": 1}), "unexpected keyword"),
        (lambda head, row: (head, row | {"compare": "loosely"}), "'loosely'"),
        (lambda head, row: (head, row | {"results": [["f32", [2], "0000"]]}), "which takes 8"),
        (lambda head, row: (head, row | {"results": [["f99", [0], ""]]}), "f99"),
        (lambda head, row: (head, {}), "oracle"),
    ],
)
def test_another_form_is_refused_and_a_file_that_is_cut_off(tmp_path, change, said):
    packed, path = corpus.pack([program()]), tmp_path / "corpus.jsonl.gz"
    path.write_bytes(packed[:-20])
    with pytest.raises(FileFormatError, match="is not of this version"):
        corpus.programs(path)
    head, row = map(json.loads, gzip.decompress(packed).splitlines())
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, change(head, row))).encode()))
    with pytest.raises(FileFormatError, match=said):
        corpus.programs(path)


def run(subject: Subject, given: Program) -> list[str]:
    ops.run(subject, given)
    return subject.notes


def test_a_right_value_passes_and_a_wrong_one_fails(subject):
    assert run(subject, program()) == []
    wrong = program(results=(CorpusTensor.of([-1.5, 2.5], "f32"),))
    with pytest.raises(Failed, match=r"^of arguments: 1 of 2 .* at \[1\] expected 2.5, found 2.0$"):
        run(subject, wrong)


def test_a_value_that_is_wrong_only_of_constants_fails(subject):
    """That happens where a compiler folds constants by other code than it runs."""
    body = program().body.replace("negate", "abs")
    given = program(body=body, results=(CorpusTensor.of([1.5, 2.0], "f32"),))
    other = CorpusTensor.of([9.0, 9.0], "f32")

    class Folded(Program):
        def text(self, *, constants: bool) -> str:
            right = super().text(constants=constants)
            return right.replace(given.arguments[0].literal, other.literal)

    folded = Folded(*(getattr(given, name) for name in Program.__slots__))
    with pytest.raises(Failed, match=r"^of constants: 2 of 2 .* expected 1.5, found 9.0$"):
        run(subject, folded)


def test_zeros_for_subnormal_numbers_are_noted(subject):
    tiny, zero = CorpusTensor.of([2.0**-130], "f32"), CorpusTensor.of([0.0], "f32")
    body = '%r0 = "stablehlo.add"(%a0, %a0) : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>'
    results = (CorpusTensor.of([2.0**-129], "f32"),)
    given = program(op="add", body=body, arguments=(tiny,), results=results)
    with pytest.raises(Failed, match=r"found 0\.0"):
        run(subject, given)
    noted = run(subject, replace(given, flushed=(zero,)))
    assert noted[0] == "subnormal numbers are taken or given as zero"


def test_what_a_compiler_does_not_take_is_unsupported(subject):
    body = program().body.replace("negate", "unary_einsum")
    body = body.replace("(%a0)", '(%a0) {einsum_config = "i->i"}')
    with pytest.raises(Unsupported, match="can't be translated"):
        run(subject, program(body=body))


def test_a_type_newer_than_the_plugin_never_reaches_it(subject, row):
    if row.api_version >= ApiVersion(0, 114):
        pytest.skip("the plugin knows all types")
    some = CorpusTensor.of([1.0], "f6E2M3FN")
    with pytest.raises(Unsupported, match="came with PJRT API"):
        run(subject, program(arguments=(some,)))
