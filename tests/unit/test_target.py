"""Target machines: how a name becomes a plugin's options, and what never reaches a plugin."""

from pathlib import Path

import pytest

from pjrt_hub.errors import ManifestError, PluginLoadError, TargetNotFoundError
from pjrt_hub.finding.contract.manifest import Manifest, default_manifest, read
from pjrt_hub.finding.contract.target import Target, gpu_target_configs

ROOT = Path(__file__).parents[2]
H100 = "NVIDIA H100 80GB HBM3"


def config(device: str, platform: str = "CUDA", more: str = "") -> str:
    return (
        f"# A comment.\ngpu_device_info {{\n  core_count: 1{more}\n}}\n"
        f'platform_name: "{platform}"\ndevice_description_str: "{device}"\n'
    )


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A file with descriptions of targets among other bytes."""
    path = tmp_path / "plugin.so"
    texts = [config(H100), config("MI300X", "ROCM"), config("NVIDIA X1")]
    texts += [config("NVIDIA X1", more="  # again"), "gpu_device_info { without a name }"]
    path.write_bytes(b"\x7fELF\0" + b"\0\xff\0".join(text.encode() for text in texts) + b"\0")
    return path


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.so"
    path.write_bytes(b"\x7fELF and nothing else")
    return path


def ours(name: str) -> Manifest:
    folder = name.rstrip("123")
    found = read(ROOT / "pjrt_plugins" / folder / "pjrt_plugin.toml")
    return next(each for each in found if each.name == name)


def test_embedded_descriptions_of_one_platform(library, plain, tmp_path):
    found = gpu_target_configs(library, "CUDA")
    assert found == {each: config(each) for each in (H100, "NVIDIA X1")}
    assert list(gpu_target_configs(library, "ROCM")) == ["MI300X"]
    assert gpu_target_configs(plain, "CUDA") == {}
    (tmp_path / "empty.so").write_bytes(b"")
    for name in ("missing.so", "empty.so"):
        with pytest.raises(PluginLoadError, match="cannot be read"):
            gpu_target_configs(tmp_path / name, "CUDA")
    endless = tmp_path / "endless.so"  # the search for a text's end is bounded
    endless.write_bytes(b"a" * 200_000 + config("NVIDIA X1").encode() + b"a" * 200_000)
    (text,) = gpu_target_configs(endless, "CUDA").values()
    assert len(text) <= 2 << 16


def test_a_gpu_by_its_short_or_its_long_name(library):
    cuda = ours("cuda13")
    options = {"target_config": config(H100), "topology": "1x1x1"}
    for name in ("H100", "h100", H100, H100.lower()):
        assert cuda.topology_options(name, {}, library) == ("", options)
    _, options = cuda.topology_options("NVIDIA X1", {"topology": "1x2x4"}, library)
    assert options == {"target_config": config("NVIDIA X1"), "topology": "1x2x4"}


def test_a_users_description_wins_and_a_long_one_is_not_printed(library):
    given = {"target_config": "mine", "topology": "1x1x2"}
    assert ours("cuda13").topology_options("H100", given, library) == ("", given)
    assert ours("cuda13").topology_options("", {}, library) == ("", {"topology": "1x1x1"})
    target = Target("H100", "cuda13", "Hopper", config="gpu_device_info {}")
    assert repr(target) == "Target(name='H100', plugin='cuda13', description='Hopper', device='')"


def test_our_own_descriptions_are_for_libraries_that_embed_none(plain):
    for name, capability in (("A100", 8), ("H100", 9), ("H200", 9)):
        _, options = ours("cuda12").topology_options(name, {}, plain)
        assert f"cuda_compute_capability {{ major: {capability} }}" in options["target_config"]
        assert 'platform_name: "CUDA"' in options["target_config"]


def test_a_gpu_that_nothing_describes(library, plain):
    with pytest.raises(TargetNotFoundError, match="'B200'; it has A100, H100, H200") as caught:
        ours("cuda12").topology_options("B200", {}, plain)
    assert "target_config" in caught.value.hint
    with pytest.raises(TargetNotFoundError, match="it has A100, H100, H200, NVIDIA X1"):
        ours("cuda13").topology_options("NVIDIA X2", {}, library)


def test_a_tpu_goes_by_the_name_that_the_plugin_knows(plain):
    tpu = ours("tpu")
    assert tpu.topology_options("V5E:2x2", {}, plain) == ("v5e:2x2", {})
    two = {"num_slices": 2}
    assert tpu.topology_options("v5e:4x4", two, plain) == ("v5e:4x4", two)
    # Options of a plugin without a description pass unchanged.
    assert default_manifest("toy").topology_options("x", {"a": [1]}, plain) == ("x", {"a": (1,)})


SHAPE = "is not a shape of a machine"


@pytest.mark.parametrize(
    ("plugin", "name", "given", "error", "words"),
    [
        # Shapes that would crash the process.
        ("tpu", "v5e:0x0", {}, ValueError, SHAPE),
        ("tpu", "v5e:-1x2", {}, ValueError, SHAPE),
        ("tpu", "v5e_0x2_untwisted", {}, ValueError, SHAPE),
        ("tpu", "v5e:99999x99999", {}, ValueError, SHAPE),
        ("tpu", "v5e:2x" + "9" * 5000, {}, ValueError, SHAPE),
        ("tpu", "v5e:2x2", {"num_slices": 0}, ValueError, SHAPE),
        ("tpu", "v5e:2x2", {"num_slices": 1 << 40}, ValueError, SHAPE),
        ("tpu", "v5e:2x2", {"chips_per_host_bounds": [1, 0, 1]}, ValueError, SHAPE),
        ("cuda13", "H100", {"topology": "-1x1x1"}, ValueError, SHAPE),
        ("cuda13", "H100", {"topology": "0x0x0"}, ValueError, SHAPE),
        ("cuda12", "H100", {"topology": "1x1x99999999"}, ValueError, SHAPE),
        # Options with a wrong type or name.
        ("tpu", "", {"num_slices": "2"}, TypeError, "'num_slices' is of type int64"),
        ("tpu", "", {"num_slice": 2}, ValueError, "did you mean 'num_slices'"),
        ("cuda13", "", {"target_config": 1}, TypeError, "'target_config' is of type string"),
        ("cuda12", "", {"topology": 1}, TypeError, "'topology' is of type string"),
        ("cpu", "", {"x": 1}, ValueError, "cpu has no topology option 'x'; it has none"),
    ],
)
def test_shapes_and_options_that_are_refused(plugin, name, given, error, words, plain):
    with pytest.raises(error, match=words):
        ours(plugin).topology_options(name, given, plain)


def test_the_list_of_a_plugin(library, plain):
    tpus = ["v2:2x2", "v3:2x2", "v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1"]
    assert [str(each) for each in ours("tpu").targets.list("tpu", None)] == [
        f"tpu:{name}" for name in tpus
    ]
    cuda, known = ours("cuda13").targets, ["A100", "H100", "H200"]
    assert [each.name for each in cuda.list("cuda13", plain)] == known
    assert [each.name for each in cuda.list("cuda13", library)] == [*known, "NVIDIA X1"]
    assert {"A100", "B200", "GB300"} <= {each.name for each in cuda.list("cuda13", None)}
    assert ours("cpu").targets.list("cpu", None) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[topology]\nx = 1", "topology.x: unknown key"),
        ('[topology]\nembedded = "CUDA"', "topology.options: not there"),
        ('[[topology.target]]\nname = ""', 'target[0].name: found ""'),
        ('[[topology.target]]\nname = "a"\nsize = 1', "target[0].size: unknown key"),
        ('[topology.options]\na = { type = "int" }', "topology.options.a.type"),
    ],
)
def test_malformed_manifests(tmp_path, text, words):
    path = tmp_path / "pjrt_plugin.toml"
    small = 'schema = 1\nname = "toy"\nplatform = "toy"\nregistry = ["toy"]\n'
    path.write_text(small + text)
    with pytest.raises(ManifestError) as caught:
        read(path)
    assert words in str(caught.value)


def test_a_gpu_that_the_compiler_is_too_new_for_is_not_listed(library):
    old, new = ours("cuda12"), ours("cuda13")
    assert [each.name for each in old.targets.list("cuda12", None)][:3] == ["P100", "V100", "A100"]
    assert [each.name for each in new.targets.list("cuda13", None)][:2] == ["A100", "A6000"]
    assert old.targets.options == new.targets.options
    for name in ("V100", "tesla v100-sxm2-16gb"):
        with pytest.raises(TargetNotFoundError, match="its compiler is too new"):
            new.topology_options(name, {}, library)


@pytest.mark.parametrize(
    ("plugin", "known", "unknown", "meant"),
    [
        ("cuda13", ("H100", "h100", H100, ""), "H1000", "'H100'"),
        ("tpu", ("v5e:2x2", "v5e:4x4", "V5E:8x8", ""), "v5x:2x2", "v5"),
    ],
)
def test_a_wrong_name_is_known_before_the_library(plugin, known, unknown, meant):
    targets = ours(plugin).targets
    for name in known:
        targets.require(name, {}, plugin=plugin)
    with pytest.raises(TargetNotFoundError, match=f"lists no machine '{unknown}'") as caught:
        targets.require(unknown, {}, plugin=plugin)
    assert caught.value.hint.startswith("did you mean ")
    assert meant in caught.value.hint
    assert f"after `pjrt-hub fetch {plugin}`" in caught.value.hint
    targets.require(unknown, {"target_config": "text"}, plugin=plugin)
