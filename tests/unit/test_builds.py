"""One plugin with builds in several packages: which is used, which are listed, and why."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import wheels
from trees import SENTINEL, Site, plugin_bytes, world

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.host import HostTag
from pjrt_hub.door import bundle, lock
from pjrt_hub.errors import AmbiguousPluginError, LockFileError
from pjrt_hub.finding.discovery.finding import findings
from pjrt_hub.finding.discovery.requirement import find_required
from pjrt_hub.finding.discovery.select import Choice, Request, choose
from pjrt_hub.finding.discovery.source import World
from pjrt_hub.finding.discovery.survey import survey
from pjrt_hub.finding.store import pins
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact, Catalog, Requirement
from pjrt_hub.finding.store.transfer import index

ARM = HostTag.parse("linux-aarch64-glibc2.17")
MEMBERS = wheels.contents(100)
FIRST = wheels.pin(wheels.build(MEMBERS), MEMBERS)
MANIFEST = 'schema = 1\nname = "cpu"\nplatform = "cpu"\nregistry = ["cpu"]\n' + "".join(
    f'[[library]]\ndistribution = "{name}"\npath = "{name}_code/toy.so"\n'
    for name in ("middle", "old", "new")
)


def build(package: str, api: str, version: str = "1.0", **changed: object) -> Artifact:
    given = {
        **{"plugin": "cpu", "platform": "cpu", "package": package, "version": version},
        "file_name": f"{package}-{version}-py3-none-any.whl",
        "sha256": hashlib.sha256(f"{package}{version}".encode()).hexdigest(),
        "api_version": ApiVersion.parse(api) if api else None,
        "api_note": "" if api else "not loaded",
        "host": HostTag.current()._replace(version=()),
    }
    return FIRST._replace(**{**given, **changed})


#: Versions of different packages are not comparable, so the oldest build has the highest here.
OLD, MIDDLE, NEW = build("old", "0.81", "9.0"), build("middle", "0.106"), build("new", "0.115")
ALL = (OLD, NEW, MIDDLE)


def at(
    tmp_path: Path, *rows: Artifact, site: Site | None = None, cached: Sequence[Artifact] = ()
) -> World:
    """A world with these rows, some of them in its cache, and a manifest for the three packages."""
    cache = Cache(tmp_path / "cache")
    for row in cached:
        library = cache.layout.entry_root(row) / row.library
        library.parent.mkdir(parents=True)
        library.write_bytes(plugin_bytes())
    here = site or Site(tmp_path / "site")
    here.write("pjrt_plugins/cpu/pjrt_plugin.toml", MANIFEST)
    return world(tmp_path, here)._replace(catalog=Catalog([], rows), cache=cache)


def install(site: Site, package: str, version: str = "1.0") -> None:
    code = f"{package}_code"
    files = {f"{code}/__init__.py": SENTINEL, f"{code}/toy.so": plugin_bytes()}
    site.install(package, version, files=files)


def ask(here: World, word: str | None = None) -> Choice:
    return choose(survey(here), Request.read(word, {}))


def told(here: World, word: str | None = None) -> list[tuple[str, str]]:
    """What `list` reports for each build: its API, and why it is used or not."""
    listed = findings(survey(here), Request.read(word, {}), offline=False)
    return [
        (str(each.api_version), each.verdict.reason)
        for each in listed
        if each.name == "cpu" and not each.aside
    ]


ELSEWHERE, TOO_NEW = NEW._replace(host=ARM), MIDDLE._replace(api_version=ApiVersion(9, 1))
UNTOLD = build("old", "", "10.0")


@pytest.mark.parametrize(
    ("rows", "cached", "word", "chosen"),
    [
        (ALL, (), None, NEW),
        (ALL, (), "cpu", NEW),
        (ALL, (), "old:cpu", OLD),
        (ALL, (), "middle:cpu", MIDDLE),
        (ALL, (), "new:cpu", NEW),
        ([OLD, ELSEWHERE, TOO_NEW], (), None, OLD),
        ([OLD, UNTOLD, MIDDLE], (), "old:cpu", UNTOLD),  # the package's newest version counts
        ([OLD, UNTOLD, MIDDLE], (), None, MIDDLE),
        (ALL, [OLD], None, OLD),  # a build that is here wins
        (ALL, [OLD, NEW], None, NEW),
        (ALL, [OLD, NEW], "old:cpu", OLD),
    ],
)
def test_the_newest_api_wins_of_what_fits_and_is_here(tmp_path, rows, cached, word, chosen):
    choice = ask(at(tmp_path, *rows, cached=cached), word)
    assert choice.candidate.artifact == chosen
    assert (choice.candidate.library_path is not None) == (chosen in cached)
    assert choice.was_asked_for_alone == (word is not None)


HIGHEST = "its hardware is present and its priority, 400, is the highest"
NEWER = "new 1.0 has the newer PJRT API, 0.115; '{}:cpu' chooses this build"


def test_the_others_are_listed_with_the_reason(tmp_path):
    here = at(tmp_path, *ALL)
    middle = ("0.106", NEWER.format("middle"))
    assert told(here) == [("0.115", HIGHEST), middle, ("0.81", NEWER.format("old"))]
    # The plugin's first build was not asked for, and each other build comes after that one.
    asked = ("0.81", "the argument asks for 'old:cpu'")
    assert told(here, "old:cpu") == [asked, ("0.115", "it was not asked for"), middle]
    assert [api for api, _ in told(at(tmp_path, OLD, ELSEWHERE, TOO_NEW))] == ["0.81"]
    here = at(tmp_path, *ALL, cached=[OLD])
    assert ("0.115", "old 9.0 is here; `pjrt-hub fetch new:cpu` fetches this build") in told(here)


def test_what_is_installed_comes_before_the_cache(tmp_path, site):
    install(site, "old", "9.0")
    here = at(tmp_path, *ALL, site=site, cached=(NEW,))
    assert ask(here).candidate.distribution == "old"
    assert ask(here).candidate.source == "namespace"
    assert ("0.115", "old 9.0 is installed; 'new:cpu' chooses this build") in told(here)


def test_of_installed_builds_the_newest_api_wins(tmp_path, site):
    for package, version in (("old", "9.0"), ("middle", "1.0"), ("new", "1.0")):
        install(site, package, version)
    here = at(tmp_path, *ALL, site=site)
    assert ask(here).candidate.distribution == "new"
    assert ask(here, "middle:cpu").candidate.library_path == site.folder / "middle_code" / "toy.so"
    # A release without a row has at least the PJRT API of the release before it.
    install(site, "new", "1.7")
    shutil.rmtree(site.folder / "new-1.0.dist-info")
    assert ask(at(tmp_path, *ALL, site=site)).candidate.version == "1.7"
    # If nothing tells the API of a build, the order in the manifest counts.
    assert ask(at(tmp_path, OLD, NEW, site=site)).candidate.distribution == "middle"


def test_the_next_build_stands_for_one_that_failed(tmp_path):
    found = survey(at(tmp_path, *ALL))
    for row, heir in ((NEW, MIDDLE), (MIDDLE, OLD)):
        (failed,) = found.candidates
        assert failed.artifact == row
        found = found.without(failed, "it failed")
        assert [each.artifact for each in found.candidates] == [heir]
    assert found.without(found.candidates[0], "it failed").candidates == ()


def test_a_variable_stands_before_all_builds(tmp_path):
    path = Site(tmp_path / "own").write("toy.so", plugin_bytes())
    here = at(tmp_path, *ALL)._replace(env={"PJRT_HUB_PLUGIN_PATH": f"cpu={path}"})
    assert ask(here).candidate.library_path == path
    assert [api for api, _ in told(here)] == ["None"]


def test_the_registry_alone_may_say_that_packages_build_a_plugin(tmp_path, site):
    site.vendor("old", "jax_plugins.cpu", "pjrt_old.so")
    site.vendor("new", "xla_plugins.cpu", "pjrt_new.so")
    here = world(tmp_path, site)
    with pytest.raises(AmbiguousPluginError, match="2 plugins of equal standing"):
        ask(here, "cpu")
    here = here._replace(catalog=Catalog([], (build("old", "0.81"), NEW)))
    assert ask(here, "cpu").candidate.distribution == "new"


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """Put rows into the registry of a new project in a separate folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PJRT_HUB_CACHE", str(tmp_path / "cache"))

    def hold(*rows: Artifact) -> None:
        monkeypatch.setattr(lock, "registry", lambda there: Catalog([], rows))
        monkeypatch.setattr(index, "locate", lambda archives, env: {})
        monkeypatch.setattr(bundle, "catalog", lambda there, locked: Catalog([], rows))

    return hold


def locked(*words: str, **options: object) -> list[tuple[str, str]]:
    """Lock these words, and return the builds in the lock file."""
    lock.lock(*words, **options)
    return [(row.package, row.host.arch) for row in pins.read(Path("pylock.pjrt.toml")).rows]


def test_a_lock_takes_the_newest_build_for_each_machine_or_those_that_are_named(registry):
    registry(*ALL, OLD._replace(host=ARM, sha256="a" * 64))
    both = locked("cpu", hosts=["linux-x86_64", "linux-aarch64"])
    assert both == [("new", HostTag.current().arch), ("old", "aarch64")]
    registry(*ALL)
    Path("pylock.pjrt.toml").unlink()
    assert locked("old") == [("old", "x86_64")]
    (change, _) = lock.lock("old:cpu", "new", check=True).changes
    assert change == f"cpu for linux-x86_64: nothing -> new 1.0 sha256 {NEW.sha256[:12]}"
    assert locked("old==9.0", "new==1.0") == [("new", "x86_64"), ("old", "x86_64")]
    # A locked build stays locked until an upgrade, or until another build is named.
    lock.lock("old==9.0")
    assert locked("cpu") == [("old", "x86_64")]
    assert locked("cpu", upgrade=True) == [("new", "x86_64")]


def test_a_lock_narrows_the_builds(tmp_path, site):
    install(site, "new")
    file = pins.Pins(tmp_path / "pylock.pjrt.toml", (), (), (OLD,))
    here = at(tmp_path, *ALL, site=site)
    here = here._replace(pins=file, catalog=Catalog([], file.among(here.catalog.rows())))
    assert ask(here).candidate.artifact == OLD
    assert "does not lock the bytes" in str(survey(here).rejections)


def test_the_registry_must_know_two_packages_of_one_plugin(registry, monkeypatch):
    registry(OLD)
    read = staticmethod(lambda request: [build(Path(request).stem, "0.1")])
    monkeypatch.setattr(lock._Resolving, "_archive", read)
    with pytest.raises(LockFileError, match=r"one 1\.0 .* and two 1\.0 .* are both the plugin 'cp"):
        lock.lock("./one.whl", "./two.whl")


def test_a_bundle_takes_the_newest_build_or_those_that_are_named(registry):
    registry(*ALL)

    def chosen(*words: str) -> list[str]:
        return [row.package for row in bundle._newest_rows(words, ())]

    assert chosen() == chosen("cpu") == ["new"]
    assert chosen("old", "middle:cpu", "cpu") == ["old", "middle", "new"]


def test_what_a_build_requires_is_its_own(tmp_path):
    named = {"plugin": "cpu", "platform": "cpu", "package": "math", "version": "1.0"}
    same = {name: getattr(FIRST, name) for name in ("size", "sha256", "members", "license")}
    library = Requirement(**named, **same, file_name="math-1.0-py3-none-any.whl")
    other = library._replace(package="other")
    rows = (OLD._replace(requires=(library,)), NEW._replace(requires=(other,)))
    here = at(tmp_path, *rows)
    assert find_required(here, "cpu", "old", "9.0") == (library,)
    assert [each.package for each in find_required(here, "cpu", "new", "1.1")] == ["other"]
