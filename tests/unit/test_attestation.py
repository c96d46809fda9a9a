"""What tools/registry.py reads of an index's attestation of a wheel."""

from __future__ import annotations

import base64
import json
import runpy
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def test_an_attestation_tells_who_published_a_wheel(monkeypatch):
    tool = Path(__file__).parents[2] / "tools" / "registry.py"
    if not tool.exists():
        pytest.skip("not in a checkout")
    monkeypatch.setattr(sys, "path", list(sys.path))
    read = runpy.run_path(str(tool))["provenance"]
    said = provenance(["aa" * 32])
    assert read(json.dumps(said).encode(), "aa" * 32) == (
        "GitHub someone/toy release.yml",
        "https://token.example.org",
    )
    with pytest.raises(SystemExit, match="not about the file"):
        read(json.dumps(said).encode(), "bb" * 32)
    for broken in (b"", b"[]", b"{}", b'{"attestation_bundles": [{"publisher": 1}]}'):
        with pytest.raises(SystemExit, match="malformed"):
            read(broken, "aa" * 32)


def provenance(digests: list[str]) -> dict[str, object]:
    """What an index serves beside a wheel, with a certificate of our own."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "toy")])
    issuer = b"https://token.example.org"
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.UnrecognizedExtension(
                x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8"),
                bytes((12, len(issuer))) + issuer,
            ),
            critical=False,
        )
        .sign(key, None)
        .public_bytes(serialization.Encoding.DER)
    )
    subjects = [{"name": "toy", "digest": {"sha256": each}} for each in digests]
    statement = base64.b64encode(json.dumps({"subject": subjects}).encode()).decode()
    attestation = {
        "envelope": {"statement": statement},
        "verification_material": {"certificate": base64.b64encode(certificate).decode()},
    }
    publisher = {"kind": "GitHub", "repository": "someone/toy", "workflow": "release.yml"}
    return {"attestation_bundles": [{"publisher": publisher, "attestations": [attestation]}]}
