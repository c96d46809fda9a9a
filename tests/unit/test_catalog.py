"""Registry rows: which are read, which are refused, and which build is chosen."""

import base64
import json
import runpy
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import wheels
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.store.catalog import (
    Artifact,
    Catalog,
    Member,
    Requirement,
    read_rows,
    shipped_registry,
    write_rows,
)

MEMBERS = wheels.contents(100)
PIN = wheels.pin(wheels.build(MEMBERS), MEMBERS)
HERE = HostTag("linux", "x86_64", "glibc", (2, 36))
DEP = Requirement(
    plugin="toy",
    platform="toy",
    package="dep",
    version="2.0",
    specifier=">=1.5,<3",
    compiles=True,
    file_name="dep-2.0-py3-none-any.whl",
    size=7,
    sha256="d" * 64,
    members=(Member("dep/bin/tool", 4, "e" * 64, executable=True),),
    license="MIT",
)
WHOLE = PIN._replace(requires=(DEP,))


def through_json(row: Artifact) -> dict[str, object]:
    return json.loads(json.dumps(row.as_row()))


ROWS = {
    "wheel": PIN,
    "not loaded": PIN._replace(api_version=None, api_note="not", urls=("https://h/x.whl",)),
    "zip": PIN._replace(file_name="toy.zip"),
    "tarball": PIN._replace(file_name="toy-1.0.tar.gz"),
    "library": PIN._replace(
        file_name="a.so", members=(Member("a.so", PIN.size, PIN.sha256),), library="a.so"
    ),
    "with what it requires": WHOLE,
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_survives_a_round_trip(tmp_path, row):
    assert Artifact.from_row(through_json(row), "test") == row
    path = tmp_path / "toy.toml"
    path.write_text(write_rows([row, PIN]))
    assert read_rows(path) == (row, PIN)


def test_what_a_plugin_requires_is_in_its_row():
    assert "plugin" not in through_json(WHOLE)["requires"][0]
    assert [each.package for each in WHOLE.archives] == ["Toy.Plugin", "dep"]
    assert [each.plugin for each in WHOLE.archives] == ["toy", "toy"]
    assert Requirement.from_row(through_json(DEP), "test") == DEP
    assert PIN.nbytes == 100 + len(MEMBERS[wheels.SIBLING])


def requires(**changed: object) -> dict[str, object]:
    row = {**WHOLE.as_row()["requires"][0], **changed}
    return {"requires": [{column: value for column, value in row.items() if value is not None}]}


def member(**changed: object) -> dict[str, object]:
    first = PIN.as_row()["members"][0]
    return {"members": [{**first, **changed}], "library": changed.get("path", first["path"])}


BAD_PATHS = ["/x.so", "a/../x.so", "a//x.so", "a/x.so/", "./x.so", "", "a\\x.so"]
MALFORMED = {
    "the column 'size' is missing": {"size": None},
    "size must be an integer, found '1'": {"size": "1"},
    "size must be an integer, found True": {"size": True},
    "size must be a positive integer, found 0": {"size": 0},
    "sha256 must be 64 lowercase hexadecimal digits": {"sha256": "A" * 64},
    "unknown column 'sise'": {"sise": 1},
    "plugin must be 1 to 32": {"plugin": "cudа"},  # the last letter is Cyrillic  # noqa: RUF001
    "platform must be 1 to 32": {"platform": "a" * 33},
    "'../x.whl' is not the name of a .whl, .zip, .tar.gz or .so": {"file_name": "../x.whl"},
    "'x.tar.bz2' is not the name of": {"file_name": "x.tar.bz2"},
    "'.so' is not the name of": {"file_name": ".so"},
    "'-x' is not the name of a package": {"package": "-x"},
    "version must be one of a distribution, such as 1.2.0, found '.'": {"version": "."},
    "version must be one of a distribution, such as 1.2.0, found 'new'": {"version": "new"},
    "a bare library has one member": {"file_name": "toy.so"},
    "is not one of the members": {"library": "other.so"},
    "is not a host tag": {"host": "linux"},
    "is not a PJRT API version": {"api_version": "new"},
    "needs an api_note": {"api_version": None},
    "urls must be strings": {"urls": [1]},
    **{f"{path!r} is not a plain relative path": member(path=path) for path in BAD_PATHS},
    "member 1: size must be a positive integer": member(size=-1),
    "member 1: sha256 must be": member(sha256="0"),
    "member 1: needs path, size and sha256": member(mode=7),
    "member 1: executable must be": member(executable="yes"),
    "requires must be a list": {"requires": {}},
    "requires must be tables": {"requires": ["dep"]},
    "requirement 1: the column 'sha256' is missing": requires(sha256=None),
    "requirement 1: unknown column 'library'": requires(library="dep/bin/tool"),
    "requirement 1: unknown column 'requires'": requires(requires=[]),
    "requirement 1: compiles must be true or false": requires(compiles=1),
    "requirement 1: specifier must be one of versions, such as >=9.12,<10": requires(specifier=">"),
    "requirement 1, member 1: '../tool'": requires(
        members=[{"path": "../tool", "size": 4, "sha256": "0" * 64}]
    ),
}


@pytest.mark.parametrize("told", MALFORMED)
def test_a_malformed_row_names_its_file_and_place(told):
    row = {**PIN.as_row(), **MALFORMED[told]}
    row = {column: value for column, value in row.items() if value is not None}
    with pytest.raises(ManifestError) as caught:
        Artifact.from_row(row, "toy.toml, row 3")
    assert caught.value.message.startswith("toy.toml, row 3")
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[artifact]]\nplugin = 'toy'\n", "row 1: the column 'platform' is missing"),
        ("artifact = 3\n", r"holds \[\[artifact\]\] tables"),
        ("[other]\n", r"holds \[\[artifact\]\] tables"),
        ("[[artifact]\n", "cannot read the registry file"),
    ],
)
def test_a_malformed_file_is_named(tmp_path, text, told):
    (tmp_path / "toy.toml").write_text(text)
    with pytest.raises(ManifestError, match=told) as caught:
        Catalog([tmp_path]).rows()
    assert str(tmp_path / "toy.toml") in caught.value.message


def registry(folder: Path, *rows: Artifact) -> Path:
    folder.mkdir()
    (folder / "rows.toml").write_text(write_rows(rows), "utf-8")
    return folder


def test_several_packages_may_build_one_plugin(tmp_path):
    other = PIN._replace(package="free-gpu", version="99", file_name="free_gpu-99.zip")
    assert Catalog([registry(tmp_path / "rows", PIN, other)]).rows() == (PIN, other)
    assert Catalog([tmp_path / "nowhere"]).rows() == ()


@given(st.text(min_size=1).filter(lambda text: max(text) < "\ud800" or max(text) > "\udfff"))
def test_any_text_survives_as_toml(text):
    with tempfile.TemporaryDirectory() as folder:
        row = PIN._replace(license=text, urls=(text,))
        assert Catalog([registry(Path(folder, "rows"), row)]).rows() == (row,)


def test_the_shipped_rows_are_sound():
    rows = Catalog([shipped_registry()]).rows()
    assert len({row.file_name for row in rows}) == len(rows)
    assert len({row.sha256 for row in rows}) == len(rows)
    plugins = "cpu cuda12 cuda13 metal mps oneapi rocm rocm10 tpu tt xpu"
    assert sorted({row.plugin for row in rows}) == plugins.split()
    here = [row for row in rows if row.plugin == "cpu" and row.host.arch == "x86_64"]
    assert {row.package: row.api_version for row in here} == {
        "fastatomstruct-xla-cpu": ApiVersion(0, 106),
        "lammps-jax-pjrt-cpu": ApiVersion(0, 115),
        "xla-cpu-pjrt": ApiVersion(0, 81),
    }
    assert [row.runs(HERE) for row in here] == ["", "", ""]


def test_an_attestation_tells_who_published_a_wheel(monkeypatch):
    tool = Path(__file__).parents[2] / "tools" / "registry.py"
    if not tool.exists():
        pytest.skip("not in a checkout")
    monkeypatch.setattr(sys, "path", list(sys.path))
    read = runpy.run_path(str(tool))["provenance"]
    said, issuer = provenance("aa" * 32), "https://token.example.org"
    assert read(said, "aa" * 32) == ("GitHub someone/toy release.yml", issuer)
    with pytest.raises(SystemExit, match="not about the file"):
        read(said, "bb" * 32)
    for broken in (b"", b"[]", b"{}", b'{"attestation_bundles": [{"publisher": 1}]}'):
        with pytest.raises(SystemExit, match="malformed"):
            read(broken, "aa" * 32)


def provenance(sha256: str) -> bytes:
    """The provenance file that an index serves for a wheel, signed with a test certificate."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "toy")])
    issuer, now = b"https://token.example.org", datetime.now(UTC)
    number = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
    said = x509.UnrecognizedExtension(number, bytes((12, len(issuer))) + issuer)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    signed = builder.add_extension(said, critical=False).sign(key, None)
    certificate = base64.b64encode(signed.public_bytes(serialization.Encoding.DER)).decode()
    statement = json.dumps({"subject": [{"name": "toy", "digest": {"sha256": sha256}}]}).encode()
    attestation = {
        "envelope": {"statement": base64.b64encode(statement).decode()},
        "verification_material": {"certificate": certificate},
    }
    publisher = {"kind": "GitHub", "repository": "someone/toy", "workflow": "release.yml"}
    bundles = [{"publisher": publisher, "attestations": [attestation]}]
    return json.dumps({"attestation_bundles": bundles}).encode()
