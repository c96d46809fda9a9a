"""`pjrt_plugin.toml`: what it gives, and that nothing malformed passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract.manifest import Library, Manifest, default_manifest, read
from pjrt_hub.finding.contract.names import did_you_mean, is_name, look_alike
from pjrt_hub.finding.contract.option import Option

SMALL = 'schema = 1\nname = "toy"\nplatform = "toy"\n'
PLACE = '[[library]]\npath = "toy.so"\n'
FIRST_PARTY = sorted(Path(__file__).parents[2].glob("pjrt_plugins/*/pjrt_plugin.toml"))


def manifests(tmp_path: Path, text: str) -> tuple[Manifest, ...]:
    path = tmp_path / "pjrt_plugin.toml"
    path.write_text(text)
    return read(path)


def ours() -> dict[str, Manifest]:
    return {each.name: each for path in FIRST_PARTY for each in read(path)}


def test_the_smallest_manifest(tmp_path: Path):
    (toy,) = manifests(tmp_path, SMALL + PLACE)
    assert (toy.name, toy.platform, toy.priority, toy.probe.kind) == ("toy", "toy", 400, "always")
    assert toy.libraries == (Library(path="toy.so"),)
    assert toy.path == tmp_path / "pjrt_plugin.toml"


def test_several_plugins_share_what_stands_above_them(tmp_path: Path):
    first, second = manifests(
        tmp_path,
        'schema = 1\nplatform = "toy"\nregistry = ["toy"]\n'
        '[options]\na = { type = "bool" }\n'
        '[[plugin]]\nname = "one"\n'
        '[[plugin]]\nname = "two"\nregistry = ["two"]\n'
        '[plugin.options]\nb = { type = "int64", default = 3 }\n',
    )
    assert (first.name, first.registry) == ("one", ("toy",))
    assert (second.name, second.registry) == ("two", ("two",))
    assert [option.name for option in first.options] == ["a"]
    assert [option.name for option in second.options] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("", "schema", "an integer"),
        ("schema = 2", "schema", "found 2, expected 1"),
        ('schema = 1\nname = "cud\u0430"\nplatform = "x"', "name", "ASCII [a-z0-9_]"),
        ('schema = 1\nname = "x"\nplatform = "X"', "platform", "ASCII [a-z0-9_]"),
        (SMALL, "library", "at least one"),
        (SMALL + "priority = true\n" + PLACE, "priority", "found True, expected an integer"),
        (SMALL + "priority = 5000\n" + PLACE, "priority", "0 to 1000"),
        (SMALL + 'aliases = ["a b"]\n' + PLACE, "aliases", "names of"),
        (SMALL + '[[library]]\npath = "/lib/toy.so"', "library[0].path", "relative path"),
        (SMALL + '[[library]]\npath = "../toy.so"', "library[0].path", "relative path"),
        (SMALL + '[[library]]\npath = "a**.so"', "library[0].path", "'**'"),
        (SMALL + '[[library]]\ndistribution = "a"\nmodule = "b"\npath = "c"', "module", "one base"),
        (SMALL + '[[library]]\nmodule = "a-b"\npath = "c"', "library[0].module", "dotted name"),
        (SMALL + PLACE + '[probe]\nkind = "usb"', "probe.kind", "always, files, kfd, pci"),
        (SMALL + PLACE + '[probe]\nkind = "files"', "probe.files", "at least one path"),
        (SMALL + PLACE + '[options.a]\ntype = "int"', "options.a.type", "int64"),
        (SMALL + PLACE + '[options.a]\ntype = "bool"\ndefault = 1', "options.a.default", "bool"),
        (SMALL + PLACE + '[compile_flags."--x"]\nvalue = 1', "compile_flags.--x", "without dashes"),
        (SMALL + PLACE + "[compile_flags.x]\nvalue = [1]", "compile_flags.x.value", "a number"),
        (SMALL + PLACE + '[compile_flags.x]\ndoc = "y"', "compile_flags.x.value", "not there"),
        (SMALL + PLACE + '[api]\nminimum = "81"', "api.minimum", "PJRT API version"),
        (SMALL + PLACE + '[environment]\nA = { value = "1", when = "x" }', "when", "present"),
        (SMALL + PLACE + '[environment]\n"A=B" = "1"', "environment.A=B", "without '='"),
        (SMALL + PLACE + '[environment]\nA = "\\u0000"', "environment.A", "no NUL"),
    ],
)
def test_malformed(tmp_path: Path, text: str, key: str, expected: str):
    with pytest.raises(ManifestError) as caught:
        manifests(tmp_path, text)
    message = str(caught.value)
    assert str(tmp_path / "pjrt_plugin.toml") in message
    assert key in message
    assert expected in message


def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path: Path):
    with pytest.raises(ManifestError, match="prority: unknown key") as caught:
        manifests(tmp_path, SMALL + "prority = 3\n" + PLACE)
    assert caught.value.hint == "did you mean 'priority'?"


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"a = [" * 5000, b"x" * (1 << 21), b"= 3"])
def test_what_is_not_toml(tmp_path: Path, raw: bytes):
    path = tmp_path / "pjrt_plugin.toml"
    path.write_bytes(raw)
    with pytest.raises(ManifestError, match=r"pjrt_plugin\.toml: .*(not TOML|larger than)"):
        read(path)


@settings(max_examples=200)
@given(st.text(max_size=40))
def test_only_ascii_names_are_names(text: str):
    assert is_name(text) == (
        0 < len(text) <= 32 and all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in text)
    )


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("cdua", "did you mean 'cuda' or 'cuda13'?"),
        ("tpus", "did you mean 'tpu'?"),
        ("vulkan", ""),
    ],
)
def test_did_you_mean(word: str, text: str):
    assert did_you_mean(word, ["cpu", "cuda", "cuda13", "tpu"]) == text


def test_options_are_checked_before_a_plugin_sees_them():
    cpu = ours()["cpu"]
    assert cpu.create_options({}) == {"cpu_device_count": 1}
    assert cpu.create_options({"cpu_device_count": 8}) == {"cpu_device_count": 8}
    for wrong in ("4", 4.0, True, None, [4]):
        with pytest.raises(TypeError, match="'cpu_device_count' is of type int64"):
            cpu.create_options({"cpu_device_count": wrong})
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        cpu.create_options({"cpu_device_count": 1 << 63})
    with pytest.raises(ValueError, match="did you mean 'cpu_device_count'"):
        cpu.create_options({"cpu_devices_count": 4})


def test_an_option_of_unknown_type_is_sent_as_python_types_it():
    mode = Option("mode", "unknown")
    for value, sent in {"x": "x", 4: 4, 0.5: 0.5, (1, 2): (1, 2)}.items():
        assert (mode.convert(value), type(mode.convert(value))) == (sent, type(sent))
    assert mode.convert(True) is True
    assert [mode.parse(text) for text in ("4", "0.5", "true", "x")] == [4, 0.5, True, "x"]
    with pytest.raises(TypeError, match="found None"):
        mode.convert(None)


def test_options_know_their_version():
    cuda = ours()["cuda12"]
    given = {"memory_fraction": 1, "visible_devices": [0, 2], "preallocate": False}
    converted = cuda.create_options(given, ApiVersion(0, 58))
    assert converted == {"memory_fraction": 1.0, "visible_devices": (0, 2), "preallocate": False}
    assert type(converted["memory_fraction"]) is float
    assert cuda.create_options({"partition_index": 1}, ApiVersion(0, 116)) == {"partition_index": 1}
    with pytest.raises(ValueError, match=r"since PJRT API 0\.116, cuda12 has 0\.58"):
        cuda.create_options({"partition_index": 1}, ApiVersion(0, 58))


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, {}),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": ""}, {}),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "False"}, {"preallocate": False}),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".3"}, {"memory_fraction": 0.3}),
        (
            {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".3", "XLA_CLIENT_MEM_FRACTION": "0.5"},
            {"memory_fraction": 0.5},
        ),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, {"allocator": "platform"}),
    ],
)
@pytest.mark.parametrize("name", ["cuda12", "cuda13", "rocm"])
def test_variables_set_options(name, env, found):
    assert ours()[name].options_from_environment(env, ApiVersion(0, 117)) == found


def test_a_variable_that_means_nothing_is_named():
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "maybe"}
    with pytest.raises(ValueError, match=r"XLA_PYTHON_CLIENT_PREALLOCATE is 'maybe'.*bool"):
        ours()["cuda13"].options_from_environment(env, ApiVersion(0, 117))


def test_a_variable_for_an_option_that_came_later_sets_nothing(tmp_path: Path):
    option = "late = { type = 'int64', since = '0.90', variables = ['LATE'] }"
    [late] = manifests(tmp_path, f"{SMALL}{PLACE}[options]\n{option}\n")
    assert late.options_from_environment({"LATE": "1"}, ApiVersion(0, 90)) == {"late": 1}
    assert late.options_from_environment({"LATE": "1"}, ApiVersion(0, 89)) == {}
    assert late.options_from_environment({"LATE": "1"}, None) == {}


def test_options_of_an_undescribed_plugin_pass_as_they_are():
    options = {"a": "x", "b": True, "c": 2, "d": 0.5, "e": [1, 2]}
    assert default_manifest("toy").create_options(options) == {**options, "e": (1, 2)}
    with pytest.raises(TypeError, match="found None"):
        default_manifest("toy").create_options({"a": None})


def test_our_own_manifests():
    found = {name: (each.platform, each.priority, each.registry) for name, each in ours().items()}
    assert found == {
        "cpu": ("cpu", 0, ("cpu",)),
        "cuda12": ("cuda", 490, ("cuda12",)),
        "cuda13": ("cuda", 500, ("cuda13",)),
        "iree_metal": ("iree_metal", 440, ()),
        "metal": ("metal", 450, ("metal",)),
        "metaljax": ("metal", 1, ()),
        "mlx": ("mlx", 390, ()),
        "mps": ("mps", 500, ("mps",)),
        "mtl": ("mtl", 400, ()),
        "oneapi": ("oneapi", 500, ("oneapi",)),
        "rocm": ("rocm", 500, ("rocm",)),
        "rocm10": ("rocm", 490, ("rocm10",)),
        "tpu": ("tpu", 500, ("tpu",)),
        "tt": ("tt", 500, ("tt",)),
        "xpu": ("xpu", 450, ("xpu",)),
    }


def test_no_name_of_ours_looks_like_another():
    fields = {"cpu", "tpu", "xpu", "cuda12", "cuda13"}  # the field's own names, long in use
    names = set(ours())
    alike = {name: look_alike(name, names - {name}) for name in names - fields}
    assert set(alike.values()) == {""}, alike


def test_environment_defaults_depend_on_the_hardware():
    tpu = ours()["tpu"]
    assert tpu.environment_for(present=True) == {}
    absent = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    assert tpu.environment_for(present=False) == absent
    assert ours()["cpu"].environment_for(present=True) == {"TF_CPP_MIN_LOG_LEVEL": "3"}


def test_compile_flags_fit_a_version_and_what_the_user_gave(tmp_path: Path):
    text = (
        SMALL
        + PLACE
        + """[compile_flags]
always = { value = true }
early = { value = 1, until = "0.81" }
late = { value = "a,b", since = "0.82", unless = ["exact"], unless_used = ["maximum"] }
"""
    )
    (toy,) = manifests(tmp_path, text)
    old, new = ApiVersion.parse("0.81"), ApiVersion.parse("0.82")
    assert toy.compile_flags_beside((), old) == {"always": True, "early": 1}
    assert toy.compile_flags_beside((), new) == {"always": True, "late": "a,b"}
    assert toy.compile_flags_beside({"always": None}, new) == {"late": "a,b"}
    assert toy.compile_flags_beside({"exact": False}, new) == {"always": True}
    assert toy.compile_flags_beside((), new, b"stablehlo.maximum") == {"always": True}
    assert toy.compile_flags_beside((), new, b"stablehlo.add") == {"always": True, "late": "a,b"}


def test_the_examples_in_the_page(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs" / "manifest.md").read_text(encoding="utf-8")
    small, _, several = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [each.name for each in manifests(tmp_path, small)] == ["toy"]
    assert [
        (each.name, [option.name for option in each.options])
        for each in manifests(tmp_path, several)
    ] == [("toy1", ["memory_fraction"]), ("toy2", ["memory_fraction", "streams"])]
