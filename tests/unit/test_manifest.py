"""`pjrt_plugin.toml`: what it defines, that malformed files are refused, and valid names."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract.manifest import Library, Manifest, default_manifest, read
from pjrt_hub.finding.contract.names import canonical, is_name, look_alike
from pjrt_hub.finding.contract.option import Option

SMALL = 'schema = 1\nname = "toy"\nplatform = "toy"\n'
PLACE = '[[library]]\npath = "toy.so"\n'
FIRST_PARTY = sorted(Path(__file__).parents[2].glob("pjrt_plugins/*/pjrt_plugin.toml"))


def manifests(tmp_path: Path, text: str) -> tuple[Manifest, ...]:
    path = tmp_path / "pjrt_plugin.toml"
    path.write_text(text)
    return read(path)


def options(manifest: Manifest) -> list[str]:
    return [option.name for option in manifest.options]


def ours() -> dict[str, Manifest]:
    return {each.name: each for path in FIRST_PARTY for each in read(path)}


def test_the_smallest_manifest(tmp_path):
    (toy,) = manifests(tmp_path, SMALL + PLACE)
    assert (toy.name, toy.platform, toy.priority, toy.probe.kind) == ("toy", "toy", 400, "always")
    assert toy.libraries == (Library(path="toy.so"),)
    assert toy.path == tmp_path / "pjrt_plugin.toml"


def test_several_plugins_share_what_stands_above_them(tmp_path):
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
    assert (options(first), options(second)) == (["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("", "schema", "an integer"),
        (SMALL, "library", "at least one"),
        (SMALL + "priority = 1979-05-27\n" + PLACE, "priority", "found a date or a time, expected"),
        (SMALL + "priority = nan\n" + PLACE, "priority", "found a float, expected an integer"),
        (SMALL + '[[library]]\npath = "a"\ntarget = "linux-x86_64"', "target", "unknown key"),
        (SMALL + '[[library]]\npath = "/lib/toy.so"', "library[0].path", "relative path"),
        (SMALL + '[[library]]\npath = "../toy.so"', "library[0].path", "relative path"),
        (SMALL + '[[library]]\npath = "a**.so"', "library[0].path", "'**'"),
        (SMALL + '[[library]]\ndistribution = "a"\nmodule = "b"\npath = "c"', "module", "one base"),
        (SMALL + '[[library]]\nmodule = "a-b"\npath = "c"', "library[0].module", "dotted name"),
        (SMALL + PLACE + '[compile_flags."--x"]\nvalue = 1', "compile_flags.--x", "without dashes"),
        (SMALL + PLACE + "[compile_flags.x]\nvalue = [1]", "compile_flags.x.value", "a number"),
        (SMALL + PLACE + '[compile_flags.x]\ndoc = "y"', "compile_flags.x.value", "not there"),
        (SMALL + PLACE + '[environment]\n"A=B" = "1"', "environment.A=B", "without '='"),
        (SMALL + PLACE + '[environment]\nA = "\\u0000"', "environment.A", "no NUL"),
    ],
)
def test_malformed(tmp_path, text, key, expected):
    """tests/loader/manifest_keys.py has the keys that manifests outside packages have, too."""
    with pytest.raises(ManifestError) as caught:
        manifests(tmp_path, text)
    message = str(caught.value)
    assert str(tmp_path / "pjrt_plugin.toml") in message
    assert key in message
    assert expected in message


def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path):
    with pytest.raises(ManifestError, match="prority: unknown key") as caught:
        manifests(tmp_path, SMALL + "prority = 3\n" + PLACE)
    assert caught.value.hint == "did you mean 'priority'?"


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"a = [" * 5000, b"x" * (1 << 21), b"= 3"])
def test_what_is_not_toml(tmp_path, raw):
    path = tmp_path / "pjrt_plugin.toml"
    path.write_bytes(raw)
    with pytest.raises(ManifestError, match=r"pjrt_plugin\.toml: .*(not TOML|larger than)"):
        read(path)


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
    """Options of a plugin without a manifest are sent in the same way."""
    given = {"a": "x", "b": True, "c": 4, "d": 0.5, "e": [1, 2]}
    sent = {**given, "e": (1, 2)}
    mode = Option("mode", "unknown")
    assert repr({name: mode.convert(value) for name, value in given.items()}) == repr(sent)
    assert repr(default_manifest("toy").create_options(given)) == repr(sent)
    assert [mode.parse(text) for text in ("4", "0.5", "true", "x")] == [4, 0.5, True, "x"]
    with pytest.raises(TypeError, match="found None"):
        mode.convert(None)
    with pytest.raises(TypeError, match="found None"):
        default_manifest("toy").create_options({"a": None})


def test_options_know_their_version():
    cuda = ours()["cuda12"]
    given = {"memory_fraction": 1, "visible_devices": [0, 2], "preallocate": False}
    converted = cuda.create_options(given, ApiVersion(0, 58))
    assert converted == {"memory_fraction": 1.0, "visible_devices": (0, 2), "preallocate": False}
    assert type(converted["memory_fraction"]) is float
    assert cuda.create_options({"partition_index": 1}, ApiVersion(0, 116)) == {"partition_index": 1}
    with pytest.raises(ValueError, match=r"since PJRT API 0\.116, cuda12 has 0\.58"):
        cuda.create_options({"partition_index": 1}, ApiVersion(0, 58))


PREALLOCATE, FRACTION = "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION"


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, {}),
        ({PREALLOCATE: ""}, {}),
        ({PREALLOCATE: "False"}, {"preallocate": False}),
        ({FRACTION: ".3"}, {"memory_fraction": 0.3}),
        ({FRACTION: ".3", "XLA_CLIENT_MEM_FRACTION": "0.5"}, {"memory_fraction": 0.5}),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, {"allocator": "platform"}),
    ],
)
@pytest.mark.parametrize("name", ["cuda12", "cuda13", "rocm"])
def test_variables_set_options(name, env, found):
    assert ours()[name].options_from_environment(env, ApiVersion(0, 117)) == found


def test_a_variable_must_fit_its_option_and_sets_none_that_came_later(tmp_path):
    option = "late = { type = 'bool', since = '0.90', variables = ['LATE'] }"
    [late] = manifests(tmp_path, f"{SMALL}{PLACE}[options]\n{option}\n")
    assert late.options_from_environment({"LATE": "1"}, ApiVersion(0, 90)) == {"late": True}
    assert late.options_from_environment({"LATE": "1"}, ApiVersion(0, 89)) == {}
    assert late.options_from_environment({"LATE": "1"}, None) == {}
    with pytest.raises(ValueError, match=r"LATE is 'maybe'.*bool"):
        late.options_from_environment({"LATE": "maybe"}, ApiVersion(0, 90))


def test_no_name_of_ours_looks_like_another():
    fields = {"cpu", "tpu", "xpu", "cuda12", "cuda13"}  # established names of the field
    names = set(ours())
    alike = {name: look_alike(name, names - {name}) for name in names - fields}
    assert set(alike.values()) == {""}, alike


def test_environment_defaults_depend_on_the_hardware():
    tpu = ours()["tpu"]
    assert tpu.environment_for(present=True) == {}
    absent = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    assert tpu.environment_for(present=False) == absent
    assert ours()["cpu"].environment_for(present=True) == {"TF_CPP_MIN_LOG_LEVEL": "3"}


def test_compile_flags_fit_a_version_and_what_the_user_gave(tmp_path):
    text = """[compile_flags]
always = { value = true }
early = { value = 1, until = "0.81" }
late = { value = "a,b", since = "0.82", unless = ["exact"], unless_used = ["maximum"] }
"""
    (toy,) = manifests(tmp_path, SMALL + PLACE + text)
    old, new = ApiVersion.parse("0.81"), ApiVersion.parse("0.82")
    assert toy.compile_flags_beside((), old) == {"always": True, "early": 1}
    assert toy.compile_flags_beside((), new) == {"always": True, "late": "a,b"}
    assert toy.compile_flags_beside({"always": None}, new) == {"late": "a,b"}
    assert toy.compile_flags_beside({"exact": False}, new) == {"always": True}
    assert toy.compile_flags_beside((), new, b"stablehlo.maximum") == {"always": True}
    assert toy.compile_flags_beside((), new, b"stablehlo.add") == {"always": True, "late": "a,b"}


def test_the_examples_in_the_page(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "manifest.md").read_text(encoding="utf-8")
    small, _, several = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [each.name for each in manifests(tmp_path, small)] == ["toy"]
    named = {each.name: options(each) for each in manifests(tmp_path, several)}
    assert named == {"toy1": ["memory_fraction"], "toy2": ["memory_fraction", "streams"]}


KNOWN = ("cpu", "cuda", "cuda13", "metal", "rocm", "tpu")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("cda", "cuda"),  # one letter is missing
        ("cudaa", "cuda"),  # one letter is extra
        ("cuba", "cuda"),  # one letter differs
        ("cdua", "cuda"),  # two letters are swapped
        ("cuda14", "cuda13"),
        ("cu_da", "cuda"),
        ("rocrn", "rocm"),
        ("meta1", "metal"),
        ("_m_e_t_a_i", "metal"),
        ("cpu", ""),  # both "cpu" and "tpu" are known names
        ("cuda_fast", ""),
        ("intel", ""),
    ],
)
def test_what_a_name_could_be_mistaken_for(name, meant):
    assert look_alike(name, KNOWN) == meant


@given(st.text(max_size=40))
def test_a_name_is_ascii(text):
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert is_name(text) == (set(text) <= allowed and 0 < len(text) <= 32)


@given(st.text("abcud0_", min_size=1, max_size=8), st.text("abcud0_", min_size=1, max_size=8))
def test_likeness_is_mutual_and_one_edit_is_seen(one, other):
    assert bool(look_alike(one, [other])) == bool(look_alike(other, [one]))
    for edited in (one[1:], f"{one}x", f"x{one[1:]}", one[1::-1] + one[2:]):
        assert edited in ("", one) or look_alike(edited, [one]) == one


@given(st.text(alphabet="aB1-_.İ", max_size=12))
def test_distributions_are_compared_as_packaging_does(text):
    assert canonical(text) == re.sub(r"[-_.]+", "-", text).lower()
