"""`pjrt-hub compile` against a topology that remembers what it was asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import pjrt_hub
from pjrt_hub.cli.__main__ import run
from pjrt_hub.errors import InvalidArgumentError, PluginNotFoundError
from pjrt_hub.finding.contract.target import Target


class Machine:
    """A topology that remembers what it was asked for."""

    platform_name = "stub"
    device_descriptions = (SimpleNamespace(kind="chip"),) * 2

    def __call__(self, platform, name, *, options, offline):
        self.asked = (platform, name, options, offline)
        if name == "v99":
            raise InvalidArgumentError("no such name")
        if options.get("num_slices") == 0:
            raise ValueError("0 is not a number of slices")
        return self

    def compile(self, program, options):
        self.options = options
        if (options.num_replicas or 1) > 2:
            raise ValueError("3 replica(s) need 3 devices")
        return SimpleNamespace(serialize=lambda: b"code")


@pytest.fixture
def compile_with(monkeypatch, tmp_path):
    machine, program, out = Machine(), tmp_path / "p.mlir", tmp_path / "code"
    program.write_text("func.func @main() { return }\n")
    monkeypatch.setattr(pjrt_hub, "topology", machine, raising=False)

    def compile_with(*args):
        status = run(["compile", str(program), "--target", "tpu:v5e:2x2", "-o", str(out), *args])
        return SimpleNamespace(status=status, machine=machine, out=out)

    return compile_with


def test_compile_options_reach_the_compiler(compile_with):
    done = compile_with(
        *("--num-replicas", "2", "--num-partitions=4", "--compile-option", "optimization_level=3"),
        *("--compile-option", "individually_defined_output_indices=[0, 1]"),
        *(
            "--compile-option",
            "use_spmd_partitioning=true",
            "--compile-option",
            "device_ids=[[0,1,2,3],[4,5,6,7]]",
        ),
        *("--compile-option", "compiler_variant=fast", "--flag", "xla_a=1", "--flag", "xla_b=x=y"),
    )
    assert (done.status, done.out.read_bytes()) == (0, b"code")
    assert done.machine.options == pjrt_hub.CompileOptions(
        num_replicas=2,
        num_partitions=4,
        optimization_level=3,
        individually_defined_output_indices=[0, 1],
        use_spmd_partitioning=True,
        device_ids=[[0, 1, 2, 3], [4, 5, 6, 7]],
        compiler_variant="fast",
        flags={"xla_a": "1", "xla_b": "x=y"},
    )


def test_topology_options_reach_the_machine(compile_with):
    done = compile_with(
        *("--topology-option", "num_slices=2", "--topology-option", "bounds=[2,2,1]"),
        *("--topology-option", "topology=1x1x1", "--topology-option", 'text="4"'),
        *("--topology-option", "day=1979-05-27", "--topology-option", "share=0.5"),
        *("--topology-option", "lines=1\nb = 2", "--topology-option", "empty=", "--offline"),
    )
    options = {
        "num_slices": 2,
        "bounds": [2, 2, 1],
        "topology": "1x1x1",
        "text": "4",
        "day": "1979-05-27",
        "share": 0.5,
        "lines": "1\nb = 2",
        "empty": "",
    }
    assert done.status == 0
    assert done.machine.asked == ("tpu", "v5e:2x2", options, True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--num-replicas", "0"], "num_replicas is 0; it must be from 1"),
        (["--num-replicas", "two"], "'two' is not a valid integer"),
        (["--num-replicas", "3"], "3 replica(s) need 3 devices."),
        (["--compile-option", "nope=1"], "there is no compile option 'nope'; there are num_rep"),
        (["--compile-option", "flags=1"], "there is no compile option 'flags'"),
        (["--compile-option", "num_partitions"], "'num_partitions' is not NAME=VALUE."),
        (["--compile-option", "use_spmd_partitioning=maybe"], "use_spmd_partitioning is 'maybe'"),
        (["--flag", "a=1", "--flag", "a=2"], "a is given twice."),
        (["--topology-option", "=1"], "'=1' is not NAME=VALUE."),
        (["--topology-option", "num_slices=0"], "0 is not a number of slices."),
    ],
)
def test_wrong_options_of_compile_are_usage_errors(compile_with, capsys, args, words):
    done = compile_with(*args)
    assert done.status == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert words in said
    assert not done.out.exists()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "'' names no machine: it must be PLATFORM:NAME"),
        ("tpu", "'tpu' names no machine"),
        ("tpu:", "'tpu:' names no machine"),
        (":v5e:2x2", "':v5e:2x2' names no machine"),
        ("tpu:v99", "tpu has no machine 'v99': no such name; `pjrt-hub targets tpu` lists"),
    ],
)
def test_a_target_that_names_no_machine_is_a_usage_error(compile_with, capsys, target, words):
    done = compile_with("--target", target)
    assert done.status == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert words in said
    assert "`pjrt-hub targets" in said
    assert not done.out.exists()


@pytest.mark.parametrize("target", ["H100", "v5e:2x2"])
def test_a_machine_without_its_platform_is_looked_up(compile_with, capsys, monkeypatch, target):
    def topology(platform, name, *, options, offline):
        raise PluginNotFoundError(f"no plugin for {platform!r}", rejections=())

    monkeypatch.setattr(pjrt_hub, "topology", topology)
    known = [Target("H100", "cuda13"), Target("H100", "cuda12"), Target("v5e:2x2", "tpu")]
    monkeypatch.setattr(pjrt_hub, "targets", lambda: known, raising=False)
    assert compile_with("--target", target).status == 2
    said = " ".join(capsys.readouterr().err.split())
    meant = {"H100": "cuda13:H100 or cuda12:H100", "v5e:2x2": "tpu:v5e:2x2"}
    assert said.endswith(f"Did you mean {meant[target]}?")


def test_a_file_that_cannot_be_written_is_told_before_the_work(compile_with, capsys, tmp_path):
    done = compile_with("-o", str(tmp_path / "none" / "code"))
    assert (done.status, vars(done.machine)) == (2, {})
    assert "There is no folder" in capsys.readouterr().err


def test_topology_options_may_describe_the_machine_alone(compile_with):
    done = compile_with("--target", "tpu", "--topology-option", "bounds=[2,2,1]")
    assert (done.status, done.machine.asked[:2]) == (0, ("tpu", ""))
