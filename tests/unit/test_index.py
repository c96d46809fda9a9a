"""The indexes that installers use, and their pages of the Simple API in HTML and JSON."""

import base64
import gzip
import json
import sys
from pathlib import Path

import pytest
import wheels
from fetching import BARE, FILE, MEMBERS, PIN, WHEEL
from loopback import Answer, Loopback

from pjrt_hub.errors import DownloadError, OfflineError, StoreError
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.transfer import index, installers
from pjrt_hub.finding.store.transfer.fetch import obtain
from pjrt_hub.finding.store.transfer.installers import Sources
from pjrt_hub.finding.store.transfer.transport import Patience

PROJECT = "/simple/toy-plugin/"
HASTY = Patience(tries=1, sleep=lambda _: None)


def html(href: str, attributes: str = "") -> Answer:
    page = (
        "<!DOCTYPE html><html><body>"
        f'<a href="../../files/toy_plugin-1.0.tar.gz">toy_plugin-1.0.tar.gz</a>'
        f'<a href="{href}#sha256={"0" * 64}" {attributes}>{PIN.file_name}</a>'
        "</body></html>"
    )
    return Answer(page.encode(), headers={"Content-Type": "text/html; charset=utf-8"})


def based(begin: str) -> Answer:
    """A page whose first `base` element applies to its links."""
    return Answer(f"<head>{begin}</head>".encode() + html(PIN.file_name).body)


def as_json(url: str, **more: object) -> Answer:
    file = {"filename": PIN.file_name, "url": url, "hashes": {"sha256": "0" * 64}, **more}
    page = {"meta": {"api-version": "1.1"}, "name": "toy-plugin", "files": [file]}
    return Answer(json.dumps(page).encode(), headers={"Content-Type": index.MEDIA_TYPES[-1]})


PACKED = {"Content-Type": "text/html", "Content-Encoding": "gzip"}
PAGES = {
    "html": html("../../files/" + PIN.file_name),
    "html, absolute path": html(FILE),
    "html, yanked": html(FILE, 'data-yanked="broken"'),
    "html, another python": html(FILE, 'data-requires-python="&gt;=99"'),
    "html, with a base": based('<base href="/files/">'),
    "html, two bases": based('<BASE><base href="/files/"/><base href="/others/">'),
    "html, compressed": Answer(gzip.compress(html(FILE).body), headers=PACKED),
    "html, not utf-8": Answer(b"<p>\xff\xfe</p>" + html(FILE).body),
    "json": as_json("../../files/" + PIN.file_name),
    "json, yanked": as_json(FILE, yanked="broken"),
    "json, with a date": as_json(FILE, **{"upload-time": "2024-01-01T00:00:00Z", "size": 7}),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_pinned_file_is_found_and_the_page_is_not_believed(server, tmp_path, page):
    server.script(PROJECT, PAGES[page])
    assert found(server, tmp_path, UV_NO_INDEX="")
    (request,) = server.asked(PROJECT)
    accepted = dict(kind.split(";q=") for kind in request.headers["accept"].split(", "))
    assert sorted(accepted, key=accepted.__getitem__) == list(index.MEDIA_TYPES)
    assert len(server.asked(FILE)) == 1


def found(server: Loopback, tmp_path: Path, **env: str) -> bool:
    """Whether the file can be fetched from the server's index."""
    asked = {**BARE, "PIP_INDEX_URL": server.url("/simple"), **env}
    entry = obtain(PIN, Cache(tmp_path / "cache"), env=asked, patience=HASTY)
    return entry.library_path.read_bytes() == MEMBERS[wheels.LIBRARY]


def test_a_password_comes_from_netrc_and_goes_to_its_own_host(server, tmp_path):
    server.script(PROJECT, html(FILE))
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\ndefault login a password b\n")
    assert found(server, tmp_path, NETRC=str(netrc))
    token = "Basic " + base64.b64encode(b"me:secret").decode()
    assert {each.headers.get("authorization") for each in server.requests} == {token}
    netrc.write_text("default login a password b\n")
    server.requests.clear()
    Cache(tmp_path / "cache").clear()
    assert found(server, tmp_path, NETRC=str(netrc))
    assert {each.headers.get("authorization") for each in server.requests} == {None}


def test_the_proxy_of_pip_is_used(server, tmp_path):
    """A request to a proxy for plain http contains the whole address."""
    inside = "http://127.0.0.1:1/simple"
    server.script(inside + "/toy-plugin/", html("http://127.0.0.1:1" + FILE))
    server.file("http://127.0.0.1:1" + FILE, WHEEL)
    assert found(server, tmp_path, PIP_INDEX_URL=inside, PIP_PROXY=server.url())


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("socks5://127.0.0.1:1", "SOCKS"),
        ("http://me:s3cret@h:x", "malformed"),
        ("ftp://me:s3cret@h", "malformed"),
    ],
)
def test_a_proxy_that_cannot_be_used(tmp_path, proxy, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "socksio", None)  # this hides the package
    env = {**BARE, "PIP_INDEX_URL": "https://127.0.0.1:1/", "PIP_PROXY": proxy}
    with pytest.raises(StoreError, match=words) as caught:
        obtain(PIN, Cache(tmp_path), env=env, patience=HASTY)
    assert "s3cret" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("variable", "url", "told"),
    [
        ("PIP_INDEX_URL", "http://[::1", "not a usable address"),
        ("PIP_FIND_LINKS", "http://[::1", "not a usable address"),
        ("PJRT_HUB_MIRRORS", "http://[::1", "not a usable address"),
        ("PIP_INDEX_URL", "http://me:s3cret@h.example/", "plain http to h.example is refused"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_source_less(tmp_path, variable, url, told):
    env = {**BARE, "PIP_NO_INDEX": "", "PIP_INDEX_URL": str(tmp_path), variable: url}
    with pytest.raises(DownloadError, match=told) as caught:
        obtain(PIN, Cache(tmp_path), env=env, patience=HASTY)
    assert "s3cret" not in str(caught.value)


UV = ["index = 3", "index = ['x']", "pip = 3", "find-links = 'x'", "[pip]\nindex-url = 5"]
UV += ["[[index]]\nurl = 5", "extra-index-url = [[]]"]
NETRC = ["machine", "", "machine 127.0.0.1 login me"]


@pytest.mark.parametrize(
    ("name", "text"), [*((".netrc", each) for each in NETRC), *(("uv.toml", each) for each in UV)]
)
def test_configurations_of_no_use_are_passed_over(server, tmp_path, name, text):
    server.script(PROJECT, html(FILE))
    (tmp_path / "uv.toml").touch()
    (tmp_path / name).write_text(text)
    env = {"UV_NO_CONFIG": "", "UV_CONFIG_FILE": str(tmp_path / "uv.toml")}
    assert found(server, tmp_path, HOME=str(tmp_path), **env)


def test_uv_forbids_indexes_in_its_file(tmp_path):
    file = tmp_path / "uv.toml"
    file.write_text("no-index = true\nfind-links = ['/wheels']\n[[index]]\nurl = '/index'\n")
    env = {**BARE, "UV_NO_CONFIG": "", "UV_CONFIG_FILE": str(file), "PIP_INDEX_URL": "/other"}
    assert installers.read_sources(env) == Sources(find_links=("/wheels",), keyring="auto")


JSON = {"Content-Type": "application/json"}
API_2 = b'{"meta": {"api-version": "2.0"}, "files": []}'
#: Useless pages, and words of the error for each.
BROKEN = {
    "not json": (Answer(b"{", headers=JSON), "is malformed"),
    "json of another shape": (Answer(b"[]", headers=JSON), "is malformed"),
    "another API": (Answer(API_2, headers=JSON), "its API version is 2.0, not 1"),
    "not utf-8": (Answer(b"\xff\xfe"), "names 0 files"),
    "no such file": (html("/files/o-1.0-py3-none-any.whl"), f"2 files, and not {PIN.file_name}"),
    "gone": (Answer(b"", "410 Gone"), "the server answered 410 Gone"),
    "busy": (Answer(b"", "503 Busy"), "the server answered 503 Busy (5 times)"),
    "without end": (Answer(bytes(17 << 20), bare=True), "the page is larger than"),
    "a bomb": (Answer(gzip.compress(bytes(40 << 20)), headers=PACKED), "the page is larger than"),
}


@pytest.mark.parametrize(("page", "told"), BROKEN.values(), ids=BROKEN)
def test_a_useless_page_is_told(server, tmp_path, page, told):
    server.script(PROJECT, page)
    env = {**BARE, "PIP_INDEX_URL": server.url("/simple")}
    with pytest.raises(DownloadError) as caught:
        obtain(PIN, Cache(tmp_path), env=env, patience=Patience(sleep=lambda _: None))
    assert told in str(caught.value)
    assert server.url("/simple") in str(caught.value)
    assert server.asked(FILE) == []


def test_credentials_go_only_to_the_files_of_their_index(server, tmp_path):
    server.script(PROJECT, html(server.url(FILE)))
    secret = server.url("/simple").replace("http://", "http://me:hunter2@")
    obtain(PIN, Cache(tmp_path), env={**BARE, "PIP_INDEX_URL": secret})
    assert "authorization" in server.asked(PROJECT)[0].headers
    assert "authorization" in server.asked(FILE)[0].headers
    with Loopback() as other:
        other.file(FILE, WHEEL)
        server.script(PROJECT, html(other.url(FILE)))
        obtain(PIN, Cache(tmp_path / "again"), env={**BARE, "PIP_INDEX_URL": secret})
        assert "authorization" not in other.asked(FILE)[0].headers


@pytest.mark.parametrize(
    "variables",
    [
        {"PIP_INDEX_URL": "{base}"},
        {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "{folder}/files"},
        {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "{base}/toy-plugin/index.html"},
        {"UV_NO_INDEX": "1", "UV_FIND_LINKS": "/nowhere,{folder}/files"},
        {"UV_DEFAULT_INDEX": "own={base}"},
        {"PJRT_HUB_MIRRORS": "{base}"},
        {"PIP_NO_INDEX": "1", "PJRT_HUB_MIRRORS": "{server}"},
    ],
    ids=str,
)
def test_indexes_and_folders_of_links_and_mirrors(server, tmp_path, variables):
    server.script(PROJECT, html(FILE))
    for path, body in {FILE: WHEEL, f"{PROJECT}index.html": html(f"../..{FILE}").body}.items():
        (tmp_path / path[1:]).parent.mkdir(parents=True)
        (tmp_path / path[1:]).write_bytes(body)
    places = {"base": (tmp_path / "simple").as_uri(), "folder": tmp_path}
    places["server"] = server.url("/simple/")
    env = {name: text.format(**places) for name, text in variables.items()}
    entry = obtain(PIN, Cache(tmp_path / "cache"), env={**BARE, **env})
    assert entry.library_path.is_file()
    assert len(server.asked(FILE)) == ("{server}" in variables.values())


def indexes(env: dict[str, str], directory: Path = Path("/nonexistent")) -> tuple[str, ...]:
    return installers.read_sources(env, directory=directory).indexes


def test_pips_variables_and_files(tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://global/simple\ncert = /etc/own.pem\n"
        "extra-index-url =\n  https://one/simple\n  https://two/simple\n"
        "[install]\nindex-url = https://install/simple\nfind-links = /wheels\n"
    )
    env = {**BARE, "PIP_CONFIG_FILE": str(config)}
    assert indexes(env) == ("https://install/simple", "https://one/simple", "https://two/simple")
    found = installers.read_sources(env, directory=tmp_path)
    assert (found.find_links, found.certificates) == (("/wheels",), "/etc/own.pem")
    assert indexes({**env, "PIP_INDEX_URL": "https://env/simple"})[0] == "https://env/simple"
    assert indexes({**env, "PIP_INDEX_URL": "https://env/simple", "PIP_NO_INDEX": "1"}) == ()


def test_uvs_variables_and_files(tmp_path):
    project = tmp_path / "project" / "inner"
    project.mkdir(parents=True)
    (project.parent / "pyproject.toml").write_text(
        '[[tool.uv.index]]\nname = "a"\nurl = "https://a/simple"\n'
        '[[tool.uv.index]]\nurl = "https://main/simple"\ndefault = true\n'
        '[tool.uv.pip]\nfind-links = ["/from-project"]\n'
    )
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/uv.toml").write_text('extra-index-url = ["https://user/simple"]\n')
    env = {**BARE, "XDG_CONFIG_HOME": str(tmp_path), "UV_INDEX": "b=https://b/simple?x=1"}
    del env["UV_NO_CONFIG"]
    first, *middle, last = indexes(env, project)
    assert (first, last) == ("https://b/simple?x=1", "https://main/simple")
    assert {"https://a/simple", "https://user/simple"} <= set(middle)
    assert "/from-project" in installers.read_sources(env, directory=project).find_links
    env["UV_DEFAULT_INDEX"] = "https://mine/simple"
    assert indexes(env, project)[-1] == "https://mine/simple"


def fake_installer(folder: Path, name: str, text: str) -> dict[str, str]:
    script = folder / name
    script.write_text(f"#!{sys.executable}\nimport sys\n{text}\n")
    script.chmod(0o755)
    return {"PATH": str(folder), "UV_NO_CONFIG": "1"}


def test_the_default_index_is_the_installers(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    help_text = (
        "  --index <I>  A list, in addition to `--default-index` (see https://docs.example/).\n"
        "  -i, --index-url <url>  Base URL (default https://index.example/simple). More.\n"
        "      --default-index <URL>\n  The default (by default: <https://uv.example/simple>).\n"
    )
    pip = f"if sys.argv[1:] == ['download', '--help']: print({help_text!r})"
    env = fake_installer(tmp_path, "pip", pip)
    assert indexes(env) == ("https://index.example/simple",)
    (tmp_path / "pip").unlink()
    assert indexes(fake_installer(tmp_path, "uv", f"print({help_text!r})")) == (
        "https://uv.example/simple",
    )
    (tmp_path / "uv").unlink()
    with pytest.raises(StoreError, match="no package index is known") as caught:
        indexes(env)
    assert "PIP_INDEX_URL" in caught.value.hint
    fake_installer(tmp_path, "pip", "sys.exit('no luck today')")
    with pytest.raises(StoreError, match="config list` failed: no luck today"):
        indexes(env)


def test_the_real_installer_tells_its_default():
    (default,) = indexes(BARE)
    assert default.startswith("https://")
    assert default.endswith("simple")


def listed(server: Loopback, *files: dict[str, object], as_html: bool = False) -> None:
    """Serve a project page with these files."""
    if as_html:
        anchors = "".join(
            f'<a href="{file["url"]}#sha256={file["hashes"]["sha256"]}"'
            + (' data-yanked="broken"' if file.get("yanked") else "")
            + f' data-requires-python="{file.get("requires-python", "").replace(">", "&gt;")}"'
            + f' data-provenance="{file.get("provenance") or ""}">{file["filename"]}</a>'
            for file in files
        )
        server.script(PROJECT, Answer(anchors.encode(), headers={"Content-Type": "text/html"}))
        return
    page = json.dumps({"meta": {"api-version": "1.3"}, "files": list(files)})
    server.script(PROJECT, Answer(page.encode(), headers={"Content-Type": index.MEDIA_TYPES[-1]}))


def a_file(version: str, name: str = "", **more: object) -> dict[str, object]:
    name = name or f"toy_plugin-{version}-py3-none-any.whl"
    return {"filename": name, "url": f"/f/{name}", "hashes": {"sha256": version[0] * 64}, **more}


RELEASES = (
    a_file("1.0"),
    a_file("1.10", **{"size": 7, "provenance": "https://index.example/provenance"}),
    a_file("1.9"),
    a_file("3.0", yanked="broken"),
    a_file("4.0", **{"requires-python": ">=99"}),
    a_file("5.0rc1"),
    a_file("9", "toy_plugin-9.tar.gz"),
    a_file("9", "other-9-py3-none-any.whl"),
)


def versions(server: Loopback, **more: str) -> list[str]:
    env = {**BARE, "PIP_INDEX_URL": server.url("/simple")}
    return [file.version for file in index.releases("Toy.Plugin", env, patience=HASTY, **more)]


@pytest.mark.parametrize("as_html", [False, True], ids=["json", "html"])
def test_releases_are_listed_newest_first(server, as_html):
    listed(server, *RELEASES, as_html=as_html)
    env = {**BARE, "PIP_INDEX_URL": server.url("/simple").replace("://", "://me:secret@")}
    found = index.releases("Toy.Plugin", env, patience=HASTY)
    assert [file.version for file in found] == ["1.10", "1.9", "1.0"]
    assert found[0].sha256 == "1" * 64
    assert found[0].size == (None if as_html else 7)
    assert found[0].provenance == "https://index.example/provenance"
    assert found[0].url.startswith("http://me:secret@")
    assert "secret" not in repr(found)
    assert versions(server, version="3.0") == ["3.0"]
    assert versions(server, version="5.0rc1") == ["5.0rc1"]
    assert versions(server, version="1.10.0") == ["1.10"]
    assert versions(server, python="99.1")[0] == "4.0"
    listed(server, a_file("5.0rc1"), a_file("5.0rc2"), as_html=as_html)  # there is no final release
    assert versions(server) == ["5.0rc2", "5.0rc1"]


def test_no_release_is_told_with_its_reasons(server):
    listed(server, a_file("3.0", yanked="broken"), a_file("4.0", **{"requires-python": ">=99"}))
    with pytest.raises(DownloadError, match=r"3\.0 is yanked: broken; 4\.0 needs Python >=99"):
        versions(server)
    with pytest.raises(DownloadError, match=r"no wheel of Toy\.Plugin 8 can be chosen"):
        versions(server, version="8")
    server.script(PROJECT, Answer(b"", "404 Not Found"))
    with pytest.raises(DownloadError, match="404 Not Found") as caught:
        versions(server)
    assert "pip index versions" in caught.value.hint


def test_the_first_index_with_the_name_owns_it(server):
    listed(server, a_file("1.0"))
    with Loopback() as other:
        listed(other, a_file("99.0"))
        env = {**BARE, "PIP_INDEX_URL": server.url("/simple")}
        env["PIP_EXTRA_INDEX_URL"] = other.url("/simple")
        found = index.releases("toy-plugin", env, patience=HASTY)
        assert [file.version for file in found] == ["1.0"]
        assert other.requests == []


def test_the_variable_forbids_every_request(server):
    listed(server, a_file("1.0"))
    env = {**BARE, "PIP_INDEX_URL": server.url("/simple")}
    for word in ("1", "yes"):
        for places in (env, {**BARE, "PJRT_HUB_MIRRORS": server.url("/mirror")}):
            with pytest.raises(OfflineError, match="PJRT_HUB_OFFLINE forbids the netw") as caught:
                index.releases("toy", {**places, "PJRT_HUB_OFFLINE": word}, patience=HASTY)
            assert "unset PJRT_HUB_OFFLINE" in caught.value.hint
    assert server.requests == []
    for word in ("", "0"):
        allowed = {**env, "PJRT_HUB_OFFLINE": word}
        assert len(index.releases("Toy.Plugin", allowed, patience=HASTY)) == 1


def test_a_folder_of_wheels_lists_its_releases(tmp_path):
    for file in RELEASES:
        (tmp_path / str(file["filename"])).write_bytes(b"x" * 5)
    env = {**BARE, "PIP_NO_INDEX": "1", "PJRT_HUB_MIRRORS": str(tmp_path)}
    found = index.releases("toy-plugin", env, patience=HASTY)
    assert [file.version for file in found] == ["4.0", "3.0", "1.10", "1.9", "1.0"]
    assert {file.size for file in found} == {5}


def test_a_page_of_the_network_names_no_file_of_this_machine(server, tmp_path):
    (tmp_path / PIN.file_name).write_bytes(WHEEL)
    server.script(PROJECT, html((tmp_path / PIN.file_name).as_uri()))
    with pytest.raises(DownloadError, match="names 1 files"):
        found(server, tmp_path)
