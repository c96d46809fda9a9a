"""Plugins are found in every source, beside malformed packages, and without an import."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import finished
import pytest
import wheels
from trees import MANIFEST, SENTINEL, Site, only, plugin_bytes, world

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import CacheError, PluginLoadError
from pjrt_hub.finding.contract.manifest import Probe, read
from pjrt_hub.finding.discovery import packages
from pjrt_hub.finding.discovery.finding import findings
from pjrt_hub.finding.discovery.hardware import present
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.library import preloads
from pjrt_hub.finding.discovery.source import Candidate
from pjrt_hub.finding.discovery.survey import Survey, survey
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact, Catalog, shipped_registry

ROOT = Path(__file__).parents[2]
TOY = MANIFEST.format(name="toy", platform="toy", priority=3, more="")
HERE = HostTag.current()._replace(version=())
IN_NAMESPACE = "pjrt_plugins/toy/toy.so"


def described(site: Site, library: str = IN_NAMESPACE) -> Path:
    """Write a library and the manifest of a plugin `toy` into a folder."""
    site.write(f"{library.rpartition('/')[0]}/pjrt_plugin.toml", TOY)
    return site.write(library, plugin_bytes())


def reasons(found: Survey) -> dict[str, str]:
    return {each.name: each.reason for each in found.rejections}


def catalog(*rows: Artifact) -> Catalog:
    return Catalog([], rows)


def row(plugin: str = "toy", **changed: object) -> Artifact:
    members = wheels.contents(1000)
    artifact = wheels.pin(wheels.build(members), members, host=HERE)
    return artifact._replace(**{"plugin": plugin, "platform": plugin, "package": plugin, **changed})


def publish(cache: Cache, artifact: Artifact) -> Path:
    library = cache.layout.entry_root(artifact) / artifact.library
    library.parent.mkdir(parents=True)
    library.write_bytes(plugin_bytes())
    return library


def test_an_entry_point_leads_to_its_manifest(tmp_path: Path, site: Site):
    library = site.plugin("toy-plugin", "toy", priority=7, version="2.1")
    found = only(survey(world(tmp_path, site)))
    assert (found.name, found.priority, found.source) == ("toy", 7, "entry_points")
    assert (found.library_path, found.version) == (library, "2.1")
    assert found.origins == ("toy-plugin 2.1, entry point pjrt_plugins:toy",)


@pytest.mark.parametrize("library", ["toy_pjrt.so", "lib/odd.so", ""])
def test_a_library_without_a_manifest_is_recognised(tmp_path: Path, site: Site, library: str):
    files = {"code/__init__.py": SENTINEL, "code/x.so": b"x"}
    files |= {f"code/{library}": plugin_bytes()} if library else {}
    site.install("toy-plugin", "2.1", {"pjrt_plugins:toy": "code"}, files)
    found = survey(world(tmp_path, site))
    told = [(each.name, each.distribution, each.version) for each in found.candidates]
    assert told == ([("toy", "toy-plugin", "2.1")] if library else [])
    paths = [each.library_path for each in found.candidates]
    assert paths == ([site.folder / "code" / library] if library else [])
    assert reasons(found) == {"toy": "the package code has no pjrt_plugin.toml"}


def test_what_others_put_beside_our_own_is_theirs(tmp_path: Path, site: Site):
    manifest = described(site).with_name("pjrt_plugin.toml")
    site.install("pjrt-hub")
    found = only(survey(world(tmp_path, site, first_party=site.folder)))
    assert (found.distribution, found.origins) == ("", (str(manifest),))
    assert sorted(packages.OURS) == sorted(each.name for each in ROOT.glob("pjrt_plugins/[a-z]*"))


@pytest.mark.parametrize("options", [{"a": None}, {"a": {}}, {"a": 1 << 64}, {"a": ["b"]}])
def test_create_options_that_no_plugin_takes(tmp_path: Path, options: dict[str, object]):
    library = Site(tmp_path).write("toy.so", plugin_bytes())
    file = tmp_path / "toy.json"
    file.write_text(json.dumps({"library_path": str(library), "create_options": options}))
    found = survey(world(tmp_path, env={"PJRT_NAMES_AND_LIBRARY_PATHS": f"toy:{file}"}))
    assert found.candidates == ()
    assert reasons(found)["toy"].startswith(f"the create_options of {file}: option 'a'")


@pytest.mark.parametrize("package", ["jax_plugins", "pjrt_plugins"])
@pytest.mark.parametrize("file", ["odd.so", "pjrt_plugin_my.so"])
def test_a_namespace_folder_without_a_manifest(tmp_path: Path, site: Site, package, file):
    library = site.write(f"{package}/toy/{file}", plugin_bytes())
    found = only(survey(world(tmp_path, site)))
    assert (found.name, found.library_path) == ("toy", library)


def test_an_initialize_that_no_manifest_asks_for_is_told(tmp_path: Path, site: Site):
    library = site.write("pjrt_plugins/toy/toy.so", plugin_bytes())

    def told() -> str:
        (found,) = findings(survey(world(tmp_path, site)), None, offline=True)
        return found.verdict.reason

    assert "initialize" not in told()
    site.write("pjrt_plugins/toy/__init__.py", "def initialize():\n    pass\n")
    hint = f"put pjrt_plugin.toml into {library.parent}, as docs/manifest.md says"
    assert told().endswith(f"; its initialize() is never called: {hint}")


def test_of_namespace_folders_with_one_name_the_first_is_the_package(tmp_path: Path, site: Site):
    library, late = described(site), Site(tmp_path / "late")
    described(late)
    found = survey(world(tmp_path, site, late))
    assert (only(found).source, only(found).library_path) == ("namespace", library)
    assert reasons(found)["toy"].startswith("shadowed by ")


def test_a_package_that_only_a_finder_knows(tmp_path: Path, site: Site):
    class Finder:
        @staticmethod
        def find_spec(name: str, path: object) -> object:
            from importlib.machinery import ModuleSpec

            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(tmp_path / "checkout" / name)]
            return spec if name == "toy_code" else None

    Site(tmp_path / "checkout").plugin("toy", "toy")
    site.install("toy", entry_points={"pjrt_plugins:toy": "toy_code"})
    found = only(survey(world(tmp_path, site, finders=(Finder,))))
    assert found.library_path == tmp_path / "checkout" / "toy_code" / "toy.so"


@pytest.mark.parametrize("group", ["pjrt_plugins", "jax_plugins"])
def test_a_namespace_package_that_only_a_finder_maps(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch, group: str
):
    """Setuptools makes one for an editable install of `packages = ["pjrt_plugins.toy"]`."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object) -> None:
            return None

    library = described(Site(tmp_path / "checkout"), f"{group}/toy/toy.so")
    if group == "jax_plugins":  # manifests are not read there
        library.with_name("pjrt_plugin.toml").unlink()
    module = ModuleType("__editable___toy_finder")
    module.MAPPING = {f"{group}.toy": str(library.parent)}
    monkeypatch.setitem(sys.modules, module.__name__, module)
    Finder.__module__ = module.__name__
    found = only(survey(world(tmp_path, site, finders=(Finder,))))
    assert (found.name, found.library_path) == ("toy", library)


@pytest.mark.parametrize(
    ("info", "version"), [("toy.egg-info", ""), ("toy_plugin-2.1-py3.11.egg-info", "2.1")]
)
def test_what_older_tools_installed(tmp_path: Path, site: Site, info: str, version: str):
    described(site, "code/toy.so")
    site.write(f"{info}/entry_points.txt", "[pjrt_plugins]\ntoy = code\n")
    found = only(survey(world(tmp_path, site)))
    assert (found.name, found.version) == ("toy", version)


def test_folders_that_may_not_be_read_are_as_good_as_empty(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
):
    """The tests may run as root, who can read everything, so a patched system call refuses."""
    site.plugin("toy-plugin", "toy")
    closed = tmp_path / "closed"
    stat = os.stat

    def refusing(path, *args, **kwargs):
        if not isinstance(path, int) and closed in (Path(os.fsdecode(path)), *Path(path).parents):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refusing)
    env = {"PJRT_HUB_PLUGIN_PATH": f"{closed}/a.so"}
    env["PJRT_NAMES_AND_LIBRARY_PATHS"] = f"b:{closed}/b.so"
    here = world(tmp_path, site, env=env, catalog=catalog(row("other")), cache=Cache(closed))
    found = survey(here._replace(installed=Installed([*here.installed.sys_path, str(closed)])))
    assert [each.source for each in found.candidates] == ["catalogued", "entry_points"]
    assert "is not the absolute path of a file" in reasons(found)["b"]
    with pytest.raises(PluginLoadError, match="is not a file"):
        survey(here, closed / "c.so")
    for ask in (Cache(closed).entries, Cache(closed).verify, Cache(closed).clear):
        with pytest.raises(CacheError, match="cannot look into"):
            ask()


def test_the_current_folder_is_gone(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch):
    site.plugin("toy-plugin", "toy")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    here = world(tmp_path, site)
    paths = ("", "relative", *here.installed.sys_path)
    assert only(survey(here._replace(installed=Installed(paths)))).name == "toy"


def test_a_vendor_wheel_that_a_manifest_describes_is_one_candidate(tmp_path: Path, site: Site):
    library = site.vendor("jax-cuda13-pjrt", "jax_plugins.xla_cuda13", "xla_cuda_plugin.so")
    found = survey(world(tmp_path, site, first_party=True))
    cuda = only(found)
    assert (cuda.name, cuda.platform, cuda.priority) == ("cuda13", "cuda", 500)
    assert (cuda.distribution, cuda.version) == ("jax-cuda13-pjrt", "1.0")
    assert cuda.library_path == library
    point = "jax-cuda13-pjrt 1.0, entry point jax_plugins:xla_cuda13"
    assert cuda.origins == ("pjrt_plugins.cuda", point)
    assert reasons(found)["cuda12"] == "the distribution jax-cuda12-pjrt is not installed"


@pytest.mark.parametrize(
    ("group", "point", "module", "library", "name"),
    [
        ("jax_plugins", "xla_ascend", "jax_plugins.xla_ascend", "xla_ascend_plugin.so", "ascend"),
        ("jax_plugins", "pjrt_plugin_tt", "jax_plugin_tt", "lib/pjrt_plugin_tt.so", "tt"),
        ("jax_plugins", "iree-cpu", "jax_plugins.iree_cpu", "pjrt_plugin_iree_cpu.so", "iree_cpu"),
        ("xla_plugins", "xla_new_pjrt", "xla_plugins.xla_new_pjrt", "xla_new_pjrt.so", "new"),
        ("torch_xla.plugins", "tt", "torch_tt:TTPlugin", "pjrt_plugin_tt.so", "tt"),
        ("jax_plugins", "xla_new", "jax_plugins.xla_new", "pjrt_c_api_gpu_plugin.so", "new"),
        ("pjrt_plugins", "new", "new_code", "libpjrt_new.so", "new"),
    ],
)
def test_vendors_that_nobody_described(
    tmp_path: Path, site: Site, group: str, point: str, module: str, library: str, name: str
):
    folder = module.partition(":")[0].replace(".", "/")
    files = {f"{folder}/__init__.py": SENTINEL, f"{folder}/{library}": plugin_bytes()}
    site.install("vendor", entry_points={f"{group}:{point}": module}, files=files)
    found = only(survey(world(tmp_path, site)))
    assert (found.name, found.platform, found.priority) == (name, name, 400)
    assert found.library_path == site.folder / folder / library
    assert found.manifest.path is None


@pytest.mark.parametrize("library", ["pjrt_c_api_gpu_plugin.so", "libpjrt_new.so"])
@pytest.mark.parametrize("folder", ["jax_plugins/new", "xla_plugins/new", "elsewhere/deep"])
def test_the_names_of_xlas_own_builds(tmp_path: Path, site: Site, folder: str, library: str):
    """They are found in a namespace folder or in a distribution's list, beside other libraries."""
    files = {f"{folder}/{library}": plugin_bytes(), f"{folder}/libother.so": plugin_bytes()}
    registered = {"jax_plugins:new": "new_code"} if folder == "elsewhere/deep" else {}
    site.install("vendor", entry_points=registered, files=files)
    found = only(survey(world(tmp_path, site)))
    assert (found.name, found.library_path) == ("new", site.folder / folder / library)
    assert (found.distribution, found.source) == ("vendor", packages.VENDOR_WHEELS)


def test_a_described_plugin_need_not_be_told_of_once_more(tmp_path: Path, site: Site):
    """An editable install lists no library, and a manifest describes what other frameworks find."""
    library = site.plugin("toy-pjrt", "toy")
    points = {"pjrt_plugins:toy": "toy_pjrt_code", "jax_plugins:toy": "toy_pjrt_code.jax"}
    site.install("toy-pjrt", entry_points=points)
    found = survey(world(tmp_path, site))
    assert (only(found).library_path, found.rejections) == (library, ())


def test_a_library_outside_the_registered_package(tmp_path: Path, site: Site):
    library = "iree/_pjrt_libs/cpu/pjrt_plugin_iree_cpu.so"
    files = {"jax_plugins/iree_cpu/__init__.py": SENTINEL, library: plugin_bytes()}
    points = {"jax_plugins:iree-cpu": "jax_plugins.iree_cpu"}
    site.install("iree-pjrt-plugin-cpu", entry_points=points, files=files)
    assert only(survey(world(tmp_path, site))).library_path == site.folder / library


def test_a_vendor_without_and_with_too_many_libraries(tmp_path: Path, site: Site):
    site.install("ops", entry_points={"jax_plugins:ops": "ops.jax"}, files={"ops/jax.py": SENTINEL})
    files = {f"two/pjrt_plugin_{x}.so": plugin_bytes() for x in "ab"}
    site.install("two", entry_points={"jax_plugins:two": "two"}, files=files)
    found = survey(world(tmp_path, site))
    assert found.candidates == ()
    assert "holds no PJRT library for linux" in reasons(found)["ops"]
    assert "pjrt_plugin_a.so, pjrt_plugin_b.so" in reasons(found)["two"]


def test_our_plugin_path(tmp_path: Path, site: Site):
    library = site.write("a/xla_foo_plugin.so", plugin_bytes())
    folder = site.write("b/pjrt_plugin_bar.so", plugin_bytes()).parent
    described = site.write("c/toy.so", plugin_bytes()).parent
    site.write("c/pjrt_plugin.toml", MANIFEST.format(name="c", platform="c", priority=9, more=""))
    items = [library, folder, described, f"named={library}", "", "relative.so", "/none.so"]
    env = {"PJRT_HUB_PLUGIN_PATH": os.pathsep.join([*map(str, items), f"N\u00e4me={library}"])}
    found = survey(world(tmp_path, env=env))
    priorities = {each.name: each.priority for each in found.candidates}
    assert priorities == {"foo": 400, "bar": 400, "c": 9, "named": 400}
    assert all(each.source == "environment" for each in found.candidates)
    assert reasons(found)["relative.so"] == "the path is not absolute"
    assert reasons(found)["/none.so"] == "/none.so is neither a file nor a folder"
    assert len(found.rejections) == 3


def test_a_name_or_file_that_we_describe_brings_its_manifest(tmp_path: Path, site: Site):
    library = site.write("xla_cpu_pjrt.so", plugin_bytes())
    for item in (str(library), f"cpu={library}"):
        made = world(tmp_path, env={"PJRT_HUB_PLUGIN_PATH": item}, first_party=True)
        found = only(survey(made))
        assert (found.name, found.priority) == ("cpu", 0)
        assert found.manifest.options[0].name == "cpu_device_count"


def test_the_variable_of_jax(tmp_path: Path, site: Site):
    library = site.write("toy.so", plugin_bytes())
    given = {"library_path": str(library), "create_options": {"n": 2}}
    settings = site.write("b.json", json.dumps(given))
    broken, huge = site.write("broken.json", "{}"), site.write("huge.json", "{}")
    os.truncate(huge, 1 << 42)  # this sparse file exceeds any memory
    items = [f"a:{library}", f"b:{settings}", "x:y:z", "lonely", f"UP:{library}", f"c:{broken}"]
    items += ["d:/none.so", f"e: {library}", f"f:{huge}"]
    env = {"PJRT_NAMES_AND_LIBRARY_PATHS": ",".join(items)}
    found = survey(world(tmp_path, env=env))
    taken = {each.name: each.create_options for each in found.candidates}
    assert taken == {"a": (), "b": (("n", 2),)}
    form, rule = (
        "it is not of the form name:path",
        "a name is of ASCII [a-z0-9_], 1 to 32 characters",
    )
    assert reasons(found) == {
        "x:y:z": form,
        "lonely": form,
        f"UP:{library}": f"'UP' cannot name a plugin: {rule}",
        "c": f"{broken} cannot be read: KeyError: 'library_path'",
        "d": "/none.so is not the absolute path of a file",
        "e": f" {library} is not the absolute path of a file",
        "f": f"{huge} cannot be read: OSError: [Errno 27] larger than 67,108,864 bytes: '{huge}'",
    }


def test_the_variable_of_a_manifest(tmp_path: Path, site: Site):
    library = site.write("libtpu.so", plugin_bytes())
    env = {"TPU_LIBRARY_PATH": str(library)}
    found = only(survey(world(tmp_path, env=env, first_party=True)))
    assert (found.name, found.library_path) == ("tpu", library)
    wrong = survey(world(tmp_path, env={"TPU_LIBRARY_PATH": "/none.so"}, first_party=True))
    texts = [each.reason for each in wrong.rejections if each.name == "tpu"]
    assert "TPU_LIBRARY_PATH is set to /none.so, which is not a file" in texts


def test_installed_comes_before_cached_before_registered(tmp_path: Path, site: Site):
    old = row("cpu", package="xla-cpu-pjrt", version="0.9", sha256="1" * 64)
    new = row("cpu", package="xla-cpu-pjrt", version="0.10", sha256="2" * 64)
    cache = Cache(tmp_path / "cache")
    places = {"first_party": True, "catalog": catalog(old, new), "cache": cache}

    def look(*sites: Site) -> Candidate:
        found = only(survey(world(tmp_path, *sites, **places)))
        assert found.name == "cpu"
        return found

    found = look()
    assert (found.source, found.version, found.must_be_fetched) == ("catalogued", "0.10", True)
    assert found.manifest.options[0].name == "cpu_device_count"
    library = publish(cache, old)
    found = look()
    assert (found.source, found.version, found.library_path) == ("cached", "0.9", library)
    assert found.artifact is old
    files = {"xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so": plugin_bytes()}
    site.install("xla-cpu-pjrt", "0.8", files=files)
    assert (look(site).source, look(site).version) == ("namespace", "0.8")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"host": HostTag("macos", "aarch64")}, "it is built for macos"),
        ({"api_version": ApiVersion(0, 54)}, "needs PJRT API 0.57 or newer"),
    ],
)
def test_a_row_that_does_not_run_here_is_refused(tmp_path: Path, changed, reason: str):
    found = survey(world(tmp_path, catalog=catalog(row(**changed))))
    assert found.candidates == ()
    assert reason in reasons(found)["toy"]


def test_the_newest_row_that_runs_here_is_the_one(tmp_path: Path):
    old, later = row(version="0.9", sha256="1" * 64), HERE._replace(version=(9999,))
    late = row(version="0.12", sha256="2" * 64, host=later)
    assert only(survey(world(tmp_path, catalog=catalog(old, late)))).artifact is old


def test_what_is_broken_is_a_reason_and_hides_no_other(tmp_path: Path, site: Site):
    site.write("registry/x.toml", "nonsense")
    site.plugin("bad-plugin", "bad", more="colour = 3")
    site.plugin("page-plugin", "page").write_bytes(b"<html>")
    site.plugin("toy-plugin", "toy")
    broken = Catalog([site.folder / "registry"])
    found = survey(world(tmp_path, site, catalog=broken, cache=Cache(tmp_path / "c")))
    assert only(found).name == "toy"
    assert "colour: unknown key" in reasons(found)["bad"]
    assert "it is an HTML page" in reasons(found)["page"]
    assert "x.toml" in reasons(found)["registry"]


def test_a_later_copy_of_a_distribution_is_told_of(tmp_path: Path, site: Site):
    late = Site(tmp_path / "late")
    first = site.vendor("toy", "jax_plugins.toy", "pjrt_plugin_toy.so", version="2.0")
    late.vendor("toy", "jax_plugins.toy", "pjrt_plugin_toy.so", version="1.0")
    found = survey(world(tmp_path, site, late))
    assert {each.library_path for each in found.candidates if each.version} == {first}
    assert any("toy 2.0" in each.reason for each in found.rejections)


def test_preloads(tmp_path: Path, site: Site):
    library = site.write("nvidia/cu13/lib/libcudart.so.13")
    path = ROOT / "pjrt_plugins" / "cuda" / "pjrt_plugin.toml"
    cuda13 = next(each for each in read(path) if each.name == "cuda13")
    found = preloads(world(tmp_path, site), cuda13, tmp_path / "elsewhere.so")
    assert found.paths == (library,)
    assert "libcudnn.so.9" in found.missing


def test_the_reasons_of_hardware(tmp_path: Path):
    """tests/loader/manifest_places.py has a case for each kind and each answer."""
    root = Site(tmp_path)
    gpu = Probe("files", ("/dev/nvidia0",), driver_file="/proc/version", driver_minimum=580)
    assert not present(gpu, tmp_path).ok
    root.write("dev/nvidia0")
    assert present(gpu, tmp_path).reason == "/dev/nvidia0 exists"
    root.write("proc/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n")
    old = present(gpu, tmp_path)
    assert (old.ok, old.reason) == (False, "the driver is 550.54.15, 580 or newer is needed")
    root.write("proc/version", "NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n")
    assert present(gpu, tmp_path).ok
    tpu = Probe("pci", vendor="0x1ae0", devices=("0x0063",))
    root.write("sys/bus/pci/devices/0000:00:05.0/vendor", "0x1ae0\n")
    root.write("sys/bus/pci/devices/0000:00:05.0/device", "0x0063\n")
    assert present(tpu, tmp_path).reason == "PCI device 0x1ae0:0x0063 at 0000:00:05.0"


CHILD = """
import os, sys
from pjrt_hub.finding.discovery.select import choose, explain
from pjrt_hub.finding.discovery.source import World
from pjrt_hub.finding.discovery.survey import survey
before = set(sys.modules)
found = survey(World.current(os.environ))
print(explain(found)); print(explain(choose(found)))
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert not new & {"numpy", "httpx", "jax_plugins", "pjrt_plugins", "cffi"}, new
"""


def test_nothing_is_imported_and_nothing_depends_on_hashing(site: Site):
    for letter in "abcde":
        site.plugin(f"dist-{letter}", f"plugin_{letter}", priority=300 + ord(letter))
        site.vendor(f"vendor-{letter}", f"jax_plugins.xla_v{letter}", f"xla_v{letter}_plugin.so")
    site.write("jax_plugins/__init__.py", SENTINEL)
    site.write("pjrt_plugins/__init__.py", SENTINEL)
    outputs = set()
    for seed in range(4):
        env = {"PYTHONPATH": f"{site.folder}:{ROOT}", "PYTHONHASHSEED": str(seed)}
        child = finished.python("-c", CHILD, seconds=60, env=env)
        assert (child.returncode, child.stderr) == (0, "")
        outputs.add(child.stdout)
    (output,) = outputs
    assert "chosen: plugin_e" in output


def test_a_namespace_package_has_the_version_of_who_ships_it(tmp_path: Path, site: Site):
    site.install("other", "9.9", files={"other/code.py": ""})
    site.install("jax-npu", "3.2", files={"jax_plugins/npu/pjrt_plugin_npu.so": plugin_bytes()})
    files = {"pjrt_plugins/toy/pjrt_plugin.toml": TOY, IN_NAMESPACE: plugin_bytes()}
    site.install("maker-of-toys", "1.7", files=files)
    found = {each.name: each for each in survey(world(tmp_path, site)).candidates}
    assert (found["npu"].distribution, found["npu"].version) == ("jax-npu", "3.2")
    assert (found["toy"].distribution, found["toy"].version) == ("maker-of-toys", "1.7")


def test_a_plugin_of_an_api_that_is_too_old_is_rejected_unfetched(tmp_path: Path, site: Site):
    site.plugin("old-plugin", "old", more='[api]\nmaximum = "0.47"')
    found = survey(world(tmp_path, site))
    assert reasons(found)["old"].startswith("needs PJRT API 0.57 or newer, the plugin has 0.47")
    assert found.candidates == ()
    mac = {
        "host": HostTag("macos", "aarch64", "", (14, 0)),
        "catalog": Catalog([shipped_registry()]),
    }
    shipped = survey(world(tmp_path, first_party=True, **mac))
    assert "metal" not in [each.name for each in shipped.candidates]
    assert any("0.47" in each.reason for each in shipped.rejections if each.name == "metal")
