"""Forms of programs: each check sends one that the plugin takes; refused forms are reported."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from pjrt_hub.errors import FileFormatError
from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Report, Verdict, artifact, corpus, programs
from pjrt_hub.kit.conformance.artifact import PortableArtifact
from pjrt_hub.kit.conformance.checks import runtime
from pjrt_hub.running.array import dtypes

TOOLS = Path(__file__).parents[2] / "tools"
#: Areas that send various programs; most checks of the others send only a + b.
AREAS = ("compile", "execute", "runtime", "donation", "serialization", "analysis", "extensions")
NAMES = ("transfers.with*", "buffers.bounded_dimensions", "leaks.compile", "ops.add.*", "ops.tan.*")
#: Checks whose programs exist only as text.
TEXT_ONLY = {"compile.undefined_value", "execute.split_by_shardy"}
FEW = ("compile",)
WORDS = "PJRT_Client_Compile: this form is not known"


def check(plugin: object, areas: Iterable[str] = AREAS) -> Report:
    return conformance.run(plugin, areas=areas, names=NAMES, offline=True)  # type: ignore[arg-type]


def others(found: Report, real: Report) -> set[str]:
    """Return the defects that only one of two plugins has, among the checks that ran on both."""
    made = {each.name for each in found.results}
    mine, before = ({each.name for each in report.defects} for report in (found, real))
    return mine ^ (before & made)


@pytest.fixture(scope="module")
def real():
    return check("cpu")


@pytest.fixture(scope="module")
def build(answering):
    """`build(answer)` returns a library of the real plugin that refuses some forms."""
    return partial(answering, "PJRT_Client_Compile")


def changes(found: Report, real: Report) -> dict[str, tuple[Verdict, str]]:
    """Return the verdict and text of checks that judge a plugin otherwise than the real one."""
    before = {each.name: each.verdict for each in real.results}
    return {
        each.name: (each.verdict, each.text)
        for each in found.results
        if before[each.name] is not each.verdict
    }


@pytest.mark.parametrize(
    ("answer", "areas", "forms"),
    [("NO_TEXT", FEW, ()), ("ONLY_ARTIFACTS", AREAS, ("basics.bytecode",))],
)
def test_a_plugin_that_reads_artifacts_has_no_defect_more(build, real, answer, areas, forms):
    found = check(build(answer), areas)
    assert others(found, real) == set()
    changed = changes(found, real)
    skipped = {name for name, (verdict, _) in changed.items() if verdict is Verdict.SKIP}
    assert skipped == {name for name in TEXT_ONLY if name.partition(".")[0] in areas}
    assert {changed[name][1] for name in skipped} == {
        "its program is there as text only, which the plugin does not take"
    }
    lacking = {name for name, (verdict, _) in changed.items() if verdict is Verdict.UNSUPPORTED}
    assert lacking == {"basics.stablehlo_text", "compile.stablehlo_text", *forms}
    assert changed.keys() == lacking | skipped
    assert changed["basics.stablehlo_text"][1] == f"the plugin does not take text: {WORDS}"


def test_a_plugin_that_refuses_artifacts_has_one_defect_more(build, real):
    found = check(build("NO_ARTIFACTS"), FEW)
    first = found.defects[0]
    assert (first.name, first.verdict) == ("basics.artifact", Verdict.FAIL)
    assert first.text == f"JAX sends portable artifacts: expected success, found: {WORDS}"
    assert others(found, real) == {"basics.artifact"}
    hidden = {each.name for each in found.hidden("basics.artifact")}
    versions = {f"artifact_of_{version}_version" for version in ("current", "minimum", "newer")}
    assert hidden == {f"compile.{name}" for name in (*versions, "truncated_artifact")}
    assert changes(found, real).keys() == hidden | {"basics.artifact"}
    assert found["compile.artifact_of_newer_version"].text == (
        "it sends portable artifacts, which the plugin does not take: see basics.artifact"
    )


def test_what_reads_only_plain_bytecode_has_one_defect(build):
    found = conformance.run(build("ONLY_BYTECODE"), areas=["execute"], offline=True)
    assert [each.name for each in found.defects] == ["basics.artifact"]
    hidden = found.hidden("basics.artifact")
    assert {"basics.execute", "execute.add"} <= {each.name for each in hidden}
    assert {each.verdict for each in hidden} == {Verdict.SKIP}


def test_a_death_over_artifacts_leaves_the_other_form(build, real):
    found = check(build("DIES_OF_ARTIFACTS"), FEW)
    first = found.defects[0]
    assert (first.name, first.verdict) == ("basics.artifact", Verdict.CRASH)
    assert others(found, real) == {"basics.artifact"}
    assert found["ops.add.f32"].verdict is Verdict.PASS


def test_single_checks_find_the_form_themselves(build):
    for answer in ("ONLY_ARTIFACTS", "NO_ARTIFACTS"):
        found = conformance.run(build(answer), names=["execute.add", "ops.add.f32"], offline=True)
        assert {each.verdict for each in found.results} == {Verdict.PASS}


@pytest.fixture(scope="module")
def tool():
    pytest.importorskip("jaxlib", exc_type=ModuleNotFoundError)
    sys.path.insert(0, str(TOOLS))
    import artifacts

    sys.path.remove(str(TOOLS))
    return artifacts


def test_there_are_artifacts_of_the_corpus():
    newest = artifact.archive().newest
    without = [
        program.name
        for program in corpus.programs()
        for constants in (False, True)
        if artifact.of(program.text(constants=constants), newest) is None
    ]
    assert without == []


def test_there_are_artifacts_of_what_other_plugins_are_sent():
    newest = artifact.archive().newest
    assert artifact.of(programs.many_products()) is not None
    kinds = [kind.name for kind in dtypes.ELEMENT_TYPES]
    without = [kind for kind in kinds if artifact.of(runtime.reversal(kind), newest) is None]
    assert without == ["s1", "u1"]  # StableHLO has no such types


def test_an_artifact_is_of_the_version_that_its_reader_knows():
    def producer(code: bytes | None) -> bytes:
        return code[5 : code.index(b"\0")] if code else b""

    assert producer(artifact.of(programs.ADD)) == b"StableHLO_v1.0.0"
    assert producer(artifact.artifact_for(programs.ADD, (0, 9, 0))) == b"StableHLO_v0.9.0"
    assert producer(artifact.of(programs.ADD, (1, 3, 5))) == b"StableHLO_v1.3.5"
    assert producer(artifact.of(programs.ADD, (99, 0, 0))) == b"StableHLO_v%d.%d.%d" % (
        artifact.archive().newest
    )
    small = runtime.reversal("f4E2M1FN")
    assert artifact.of(small, (1, 7, 0)) is None
    assert producer(artifact.of(small, (1, 8, 1))) == b"StableHLO_v1.8.1"
    assert artifact.of("no program of ours") is None


def test_the_serializer_writes_the_same_today(tool):
    serializer = tool.Serializer()
    texts = [programs.ADD, programs.SLOW, programs.many_products(), *tool.texts(["donation"])]
    texts += [program.text(constants=True) for program in corpus.programs()[::50]]
    known = artifact.archive()
    hint = "run `python tools/artifacts.py`"
    for text in texts:
        made = tuple(serializer.artifacts(text))
        assert known.programs.get(artifact.key(text)) == made, (text, hint)
        if made[0].since <= (1, 5, 0):
            module = serializer.module(text)
            with serializer.context:
                code = serializer.dialect.serialize_portable_artifact(module, "1.5.0")
            assert artifact.of(text, (1, 5, 0)) == code
    assert artifact.add_bytecode() == serializer.bytecode(programs.ADD)


def test_an_archive_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "artifacts.gz"
    old, new = (
        PortableArtifact(v, b"ML\xefR\rStableHLO_v%d.%d.%d\0" % v) for v in ((0, 9, 0), (1, 2, 0))
    )
    path.write_bytes(artifact.pack((1, 4, 0), {"a": [old, new], "b": [new]}))
    read = artifact.archive(path)
    assert read.newest == (1, 4, 0)
    assert read.programs == {artifact.key("a"): (old, new), artifact.key("b"): (new,)}
    assert new.at((1, 3, 7)) == b"ML\xefR\rStableHLO_v1.3.7\0"


@pytest.mark.parametrize(
    "change",
    [
        lambda head, code: ({**head, "form": 2}, code),
        lambda head, code: (head, code[:-1]),
        lambda head, code: (head, code + b"x"),
        lambda head, code: ({**head, "programs": {"a": [[[1], 2]]}}, code),
        lambda head, code: ({"form": 1}, code),
    ],
)
def test_another_form_of_archive_is_refused(tmp_path, change):
    path = tmp_path / "artifacts.gz"
    packed = artifact.pack((1, 4, 0), {"a": [PortableArtifact((1, 0, 0), b"code")]})
    first, _, code = gzip.decompress(packed).partition(b"\n")
    head, code = change(json.loads(first), code)
    path.write_bytes(gzip.compress(json.dumps(head).encode() + b"\n" + code))
    with pytest.raises(FileFormatError, match="is not of this version"):
        artifact.archive(path)
