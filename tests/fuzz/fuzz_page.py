"""A page of an index, in HTML or JSON: any bytes give files or a refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pjrt_hub.finding.store.transfer import index
from pjrt_hub.finding.store.transfer.transport import Page, Refused

BASE = "https://user:secret@index.invalid/simple"
NAME = "toy_plugin-1.0-py3-none-any.whl"
FINDINGS = (b"<![\0~",)  # the parser of the standard library gives up with an AssertionError


def seeds() -> Iterator[bytes]:
    """Pages as indexes write them."""
    yield (
        f'<!DOCTYPE html><html><head><base href="/files/"></head><body>'
        f'<a href="{NAME}#sha256={"0" * 64}" data-requires-python="&gt;=3.11" '
        f'data-yanked="broken" data-provenance="https://index.invalid/p">{NAME}</a></body></html>'
    ).encode()
    yield b'<a href="https://[::1/x.whl">x</a><a>none</a><a href="../%2e%2e/y-1-py3-none-any.whl">'
    file = {"filename": NAME, "url": f"../files/{NAME}", "hashes": {"sha256": "0" * 64}}
    file |= {"requires-python": ">=3.11", "size": 5, "yanked": "broken", "provenance": None}
    yield json.dumps({"meta": {"api-version": "1.3"}, "name": "toy", "files": [file]}).encode()
    yield json.dumps({"files": [{**file, "url": "https://other.invalid/x.whl"}]}).encode()


def one(data: bytes) -> None:
    """Read one input, as JSON where it begins like it."""
    kind = "json" if data.lstrip()[:1] in (b"{", b"[") else "html"
    page = Page(f"{BASE}/toy-plugin/", data, f"text/{kind}")
    try:
        files = index._files(page, BASE)
    except Refused:
        return
    for file in files:
        assert isinstance(file.package + file.version, str)
        assert "secret" not in repr(file)
