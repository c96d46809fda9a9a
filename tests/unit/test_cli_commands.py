"""`pjrt-hub compile`, `bundle` and `lock` with a stubbed public interface."""

import json
from types import SimpleNamespace

import pytest

import pjrt_hub
from pjrt_hub.cli.__main__ import run
from pjrt_hub.errors import ArchiveError, InvalidArgumentError, PluginNotFoundError
from pjrt_hub.finding.contract.target import Target


class Machine:
    """A stub of a topology that records its arguments."""

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


def each(option: str, *values: str) -> list[str]:
    """The same option once for each of these values."""
    return [word for value in values for word in (option, value)]


def test_compile_options_reach_the_compiler(compile_with):
    given = each(
        *("--compile-option", "optimization_level=3", "use_spmd_partitioning=true"),
        *("individually_defined_output_indices=[0, 1]", "device_ids=[[0,1,2,3],[4,5,6,7]]"),
        "compiler_variant=fast",
    )
    given += each("--flag", "xla_a=1", "xla_b=x=y")
    done = compile_with("--num-replicas", "2", "--num-partitions=4", *given)
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
    options = {
        "num_slices=2": 2,
        "bounds=[2,2,1]": [2, 2, 1],
        "topology=1x1x1": "1x1x1",
        'text="4"': "4",
        "day=1979-05-27": "1979-05-27",
        "share=0.5": 0.5,
        "lines=1\nb = 2": "1\nb = 2",
        "empty=": "",
    }
    done = compile_with(*each("--topology-option", *options), "--offline")
    expected = {text.partition("=")[0]: value for text, value in options.items()}
    assert done.status == 0
    assert done.machine.asked == ("tpu", "v5e:2x2", expected, True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("--num-replicas 0", "num_replicas is 0; it must be from 1"),
        ("--num-replicas two", "'two' is not a valid integer"),
        ("--num-replicas 3", "3 replica(s) need 3 devices."),
        ("--compile-option nope=1", "there is no compile option 'nope'; there are num_rep"),
        ("--compile-option flags=1", "there is no compile option 'flags'"),
        ("--compile-option num_partitions", "'num_partitions' is not NAME=VALUE."),
        ("--compile-option use_spmd_partitioning=maybe", "use_spmd_partitioning is 'maybe'"),
        ("--flag a=1 --flag a=2", "a is given twice."),
        ("--topology-option =1", "'=1' is not NAME=VALUE."),
        ("--topology-option num_slices=0", "0 is not a number of slices."),
        ("--target=", "'' names no machine: it must be PLATFORM:NAME ... `pjrt-hub targets"),
        ("--target tpu", "'tpu' names no machine ... `pjrt-hub targets"),
        ("--target tpu:", "'tpu:' names no machine ... `pjrt-hub targets"),
        ("--target :v5e:2x2", "':v5e:2x2' names no machine ... `pjrt-hub targets"),
        (
            "--target tpu:v99",
            "tpu has no machine 'v99': no such name; `pjrt-hub targets tpu` lists",
        ),
        ("-o none/code", "There is no folder"),
    ],
)
def test_wrong_options_of_compile_are_usage_errors(compile_with, capsys, args, words):
    done = compile_with(*args.split())
    assert done.status == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert all(part in said for part in words.split(" ... ")), said
    assert not done.out.exists()
    if "none" in args:  # the error comes before any work
        assert vars(done.machine) == {}


@pytest.mark.parametrize(
    ("target", "meant"), [("H100", "cuda13:H100 or cuda12:H100"), ("v5e:2x2", "tpu:v5e:2x2")]
)
def test_a_machine_without_its_platform_is_looked_up(
    compile_with, capsys, monkeypatch, target, meant
):
    def topology(platform, name, *, options, offline):
        raise PluginNotFoundError(f"no plugin for {platform!r}", rejections=())

    monkeypatch.setattr(pjrt_hub, "topology", topology)
    known = [Target("H100", "cuda13"), Target("H100", "cuda12"), Target("v5e:2x2", "tpu")]
    monkeypatch.setattr(pjrt_hub, "targets", lambda: known, raising=False)
    assert compile_with("--target", target).status == 2
    assert " ".join(capsys.readouterr().err.split()).endswith(f"Did you mean {meant}?")


def test_topology_options_may_describe_the_machine_alone(compile_with):
    done = compile_with("--target", "tpu", "--topology-option", "bounds=[2,2,1]")
    assert (done.status, done.machine.asked[:2]) == (0, ("tpu", ""))


HELD = ("toy 1.0 for linux-x86_64-glibc2.17, 3 MB",)


def test_export(monkeypatch, capsys, tmp_path):
    asked = []

    def export(path, *platforms, **options):
        path.write_bytes(bytes(2000))
        asked.append((path.name, platforms, options))
        return HELD

    monkeypatch.setattr(pjrt_hub, "export_bundle", export, raising=False)
    out = tmp_path / "toy.bundle"
    line = ["bundle", "export", str(out), "toy", "--platform", "cpu"]
    assert run([*line, "--host", "linux-x86_64"]) == 0
    assert capsys.readouterr().out == f"{HELD[0]}\n1 archive in {out} (2 kB)\n"
    assert run([*line, "--plugin-only", "--allow-restricted", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(out), "artifacts": list(HELD)}
    here = {"hosts": ("linux-x86_64",), "plugin_only": False, "allow_restricted": False}
    alone = {"hosts": (), "plugin_only": True, "allow_restricted": True}
    assert asked == [("toy.bundle", ("toy", "cpu"), options) for options in (here, alone)]


def test_import(monkeypatch, capsys, tmp_path):
    path = tmp_path / "toy.bundle"
    assert run(["bundle", "import", str(path)]) == 2
    path.write_bytes(bytes(2000))
    monkeypatch.setattr(pjrt_hub, "import_bundle", lambda path: HELD, raising=False)
    assert run(["bundle", "import", str(path)]) == 0
    assert capsys.readouterr().out == f"{HELD[0]}\n1 archive in {path} (2 kB)\n"

    def refuse(path):
        raise ArchiveError("the bundle is refused", hint="copy it again")

    monkeypatch.setattr(pjrt_hub, "import_bundle", refuse)
    assert run(["bundle", "import", str(path)]) == 4
    assert "error: the bundle is refused\n\nhint: copy it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("terminal", "typed", "yes", "trusted"),
    [
        (False, "y\n", [], False),
        (True, "y\n", [], True),
        (True, "n\n", [], False),
        (True, "\n", [], False),
        (False, "", ["--yes"], True),
    ],
)
def test_only_a_yes_is_a_yes(monkeypatch, capsys, tmp_path, terminal, typed, yes, trusted):
    answers = []

    def lock(*requests, trust, **options):
        answers.append(trust("sha256 0123"))
        pins = SimpleNamespace(path=tmp_path / "x", rows=())
        return SimpleNamespace(pins=pins, changes=(), additions=())

    monkeypatch.setattr(pjrt_hub, "lock", lock, raising=False)
    stdin = SimpleNamespace(isatty=lambda: terminal, readline=lambda: typed)
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: typed.strip())
    assert run(["lock", "toy", *yes]) == 0
    assert answers == [trusted]
    assert "sha256 0123" in capsys.readouterr().err
