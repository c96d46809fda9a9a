"""What the checks say of a device whose memory has tiles, made by the layer `discrete`."""

from __future__ import annotations

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict

#: Checks that read or write a device's bytes as they lie in its memory.
RAW = ("buffers.layout", "buffers.on_device_size*", "transfers.parts*", "transfers.raw*")
TILED = {"buffers.layout", "transfers.parts_with_layout", "transfers.raw_of_running_work"}


def test_bytes_in_tiles_are_no_defect(monkeypatch):
    monkeypatch.setenv("PJRT_HUB_LAYERS", "discrete")
    monkeypatch.setenv("PJRT_HUB_DISCRETE", "tiled")
    report = conformance.run("cpu", names=RAW, offline=True)
    assert report.defects == ()
    tiled = [each for each in report.results if each.text == "the layout is of tiles"]
    assert {each.name for each in tiled} == TILED
    assert {each.verdict for each in tiled} == {Verdict.UNSUPPORTED}
    assert report.counts[Verdict.PASS] > 10
