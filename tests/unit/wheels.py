"""Small wheels and their pins, made on the spot."""

import base64
import hashlib
import io
import random
import zipfile
from collections.abc import Mapping

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.store.catalog import Artifact, Member

LIBRARY = "toy_plugin/lib/toy.so"
SIBLING = "toy_plugin/lib/helper/libtoy_helper.so"


def contents(nbytes: int = 3 << 20, seed: int = 7) -> dict[str, bytes]:
    """The members of a toy plugin; the library cannot be compressed."""
    rng = random.Random(seed)
    return {
        LIBRARY: rng.randbytes(nbytes),
        SIBLING: b"helper" * 1000,
        "toy_plugin-1.0.dist-info/METADATA": b"Name: toy-plugin\n",
    }


def recorded(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """These members and, where one is a wheel's METADATA, the RECORD beside it."""
    metadata = [name for name in members if name.endswith(".dist-info/METADATA")]
    if not metadata:
        return dict(members)
    path = metadata[0].replace("METADATA", "RECORD")
    rows = [f"{name},sha256={_hash(body)},{len(body)}\n" for name, body in members.items()]
    return {**members, path: f"{''.join(rows)}{path},,\n".encode()}


def _hash(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")


def build(members: Mapping[str, bytes], *, stored: bool = False) -> bytes:
    """A wheel that holds these members and its RECORD, deflated unless `stored`."""
    out = io.BytesIO()
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, body in recorded(members).items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), body, method)
    return out.getvalue()


def pin(wheel: bytes, members: Mapping[str, bytes], **changed: object) -> Artifact:
    """The registry row of a wheel, with both of its libraries."""
    row = {
        "plugin": "toy",
        "platform": "toy",
        "package": "Toy.Plugin",
        "version": "1.0",
        "file_name": "toy_plugin-1.0-py3-none-manylinux_2_17_x86_64.whl",
        "size": len(wheel),
        "sha256": hashlib.sha256(wheel).hexdigest(),
        "members": tuple(
            Member(path, len(members[path]), hashlib.sha256(members[path]).hexdigest())
            for path in (LIBRARY, SIBLING)
        ),
        "library": LIBRARY,
        "host": HostTag("linux", "x86_64", "glibc", (2, 17)),
        "license": "Apache-2.0",
        "api_version": ApiVersion(0, 81),
    }
    return Artifact(**{**row, **changed})
