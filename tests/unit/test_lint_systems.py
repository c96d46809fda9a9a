"""`lint` of what is shipped for macOS and Windows, on any system."""

from __future__ import annotations

import sys
from pathlib import Path

import images
import pytest
from images import X86_64, macho, pe, universal
from trees import plugin_bytes
from wheels import build

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.kit import authoring

INFO = "toy_pjrt-1.0.dist-info"
#: What is asked of the library and the wheel; these packages register nothing.
ASKED = ("PLG1", "PLG202", "PLG203", "PLG205", "PLG207")


def found(folder: Path, tag: str, **members: bytes) -> list[tuple[str, str]]:
    """The rules about libraries that do not hold of a wheel, each with its text."""
    path = folder / f"toy_pjrt-1.0-{tag}.whl"
    files = {f"toy_pjrt/{name.replace('__', '.')}": body for name, body in members.items()}
    wheel = f"Root-Is-Purelib: false\nTag: {tag}\n"
    path.write_bytes(build({**files, f"{INFO}/WHEEL": wheel.encode()}))
    return [
        (each.rule.code, f"{each.where}: {each.text}")
        for each in authoring.lint(path)
        if each.rule.code.startswith(ASKED)
    ]


def needing(*names: str, **kw: object) -> bytes:
    return macho(libraries=[(images.LOAD, name) for name in names], **kw)  # type: ignore[arg-type]


INTEL = {"machine": X86_64, "systems": (), "version_min": 0x000A0D00}
BOTH = universal(macho(**INTEL), macho())


@pytest.mark.parametrize(
    ("tag", "members"),
    [
        ("py3-none-macosx_11_0_arm64", {"toy__dylib": macho()}),
        ("py3-none-macosx_11_0_arm64", {"toy__so": macho(kind=images.BUNDLE)}),
        ("py3-none-macosx_10_13_x86_64", {"toy__dylib": macho(**INTEL)}),
        ("py3-none-macosx_10_13_intel", {"toy__dylib": macho(**INTEL)}),
        ("py3-none-macosx_10_13_universal2", {"toy__dylib": BOTH}),
        ("py3-none-macosx_11_0_arm64", {"toy__dylib": BOTH}),
        ("py3-none-macosx_10_13_x86_64.macosx_11_0_arm64", {"toy__dylib": BOTH}),
        ("py3-none-macosx_14_0_arm64", {"toy": macho(systems=((images.MACOS, 0x000E0300),))}),
        ("py3-none-win_amd64", {"toy__dll": pe()}),
        ("py3-none-win_arm64", {"toy__dll": pe(machine=images.ARM64_PE)}),
        ("cp312-cp312-win_amd64", {"toy__dll": pe(), "core__pyd": pe(("PyInit_core",))}),
        ("cp312-cp312-macosx_11_0_arm64", {"a__dylib": macho(), "b__so": macho(("_PyInit_b",))}),
    ],
)
def test_a_good_wheel_has_no_finding(tmp_path, tag, members):
    assert found(tmp_path, tag, **members) == []


@pytest.mark.parametrize(
    ("tag", "members", "code", "text"),
    [
        (
            "py3-none-macosx_11_0_arm64", {"toy__dylib": macho(("_Other",))}, "PLG101",
            "no library exports GetPjrtApi; found: toy_pjrt/toy.dylib",
        ),
        (
            "py3-none-macosx_11_0_universal2",
            {"toy__dylib": universal(macho(), macho((), machine=X86_64))}, "PLG101",
            "toy_pjrt/toy.dylib: its part for x86_64 does not export GetPjrtApi",
        ),
        (
            "py3-none-win_amd64", {"toy__dll": pe(), "old__dll": pe((), machine=0x14C, wide=False)},
            "PLG102", "toy_pjrt/old.dll: it is not a 64-bit little-endian library",
        ),
        (
            "py3-none-win_amd64", {"toy__dll": pe(), "page__dll": b"<html>"}, "PLG102",
            "toy_pjrt/page.dll: it is not a shared library: it is an HTML page",
        ),
        (
            "py3-none-macosx_11_0_arm64", {"a__dylib": BOTH, "b__dylib": macho()}, "PLG103",
            "2 libraries export GetPjrtApi: toy_pjrt/a.dylib, toy_pjrt/b.dylib",
        ),
        (
            "py3-none-macosx_11_0_arm64", {"a__dylib": macho(("_GetPjrtApi", "_x"))}, "PLG104",
            "1 more are exported: x",
        ),
        (
            "py3-none-macosx_11_0_arm64", {"a__dylib": macho(run_paths=("lib",))}, "PLG105",
            "the run path 'lib' is relative",
        ),
        (
            "py3-none-macosx_11_0_arm64", {"a__dylib": macho(run_paths=("/Users/me/lib",))},
            "PLG105", "'/Users/me/lib' may belong to anybody",
        ),
        (
            "py3-none-macosx_11_0_arm64", {"a__dylib": needing("bazel-out/bin/libb.dylib")},
            "PLG105", "'bazel-out/bin/libb.dylib' is needed, which is relative",
        ),
        (
            "py3-none-macosx_11_0_arm64", {"a__dylib": macho(run_paths=("/opt/homebrew/lib",))},
            "PLG106", "absolute: /opt/homebrew/lib",
        ),
        (
            "py3-none-macosx_11_0_arm64",
            {"a__dylib": needing("@rpath/libb.dylib", "/opt/homebrew/lib/libomp.dylib",
                                 "@loader_path/b.dylib"), "b__dylib": macho(())},
            "PLG109", "toy_pjrt/a.dylib: needed and not found: @rpath/libb.dylib, "
            "/opt/homebrew/lib/libomp.dylib",
        ),
        (
            "py3-none-win_amd64", {"a__dll": pe(needed=("MSVCP140.dll", "B.dll", "ADVAPI32.dll")),
                                   "b__dll": pe(())},
            "PLG109", "toy_pjrt/a.dll: needed and not found: msvcp140.dll; part of "
            "the Microsoft Visual C++ runtime",
        ),
        (
            "py3-none-macosx_11_0_arm64", {"a__dylib": macho(locals_count=70_000)}, "PLG111",
            "1.12 MB of 1.12 MB are symbols that nothing reads",
        ),
        (
            "py3-none-win_amd64", {"a__dll": pe(symbols=70_000)}, "PLG111",
            "1.26 MB of 1.26 MB are symbols that nothing reads",
        ),
        (
            "py3-none-macosx_11_0_universal2", {"toy__dylib": macho()}, "PLG202",
            "built for macos-aarch64, the wheel's tag is macosx_11_0_universal2",
        ),
        (
            "py3-none-macosx_11_0_x86_64", {"toy__dylib": macho()}, "PLG202",
            "built for macos-aarch64, the wheel's tag is macosx_11_0_x86_64",
        ),
        (
            "py3-none-win_amd64", {"toy__dll": pe(machine=images.ARM64_PE)}, "PLG202",
            "built for windows-aarch64, the wheel's tag is win_amd64",
        ),
        (
            "py3-none-manylinux_2_28_x86_64", {"toy__so": macho(**INTEL)}, "PLG202",
            "built for macos-x86_64, the wheel's tag is manylinux_2_28_x86_64",
        ),
        (
            "py3-none-macosx_11_0_arm64",
            {"toy__dylib": macho(systems=((images.IOS, 0x000B0000),))}, "PLG202",
            "built for ios-aarch64",
        ),
        (
            "py3-none-any", {"toy__dll": pe()}, "PLG202",
            "built for windows-x86_64, the wheel's tag is any",
        ),
        (
            "py3-none-macosx_11_0_arm64",
            {"toy__dylib": macho(systems=((images.MACOS, 0x000E0000),))}, "PLG203",
            "needs macosx_14_0_arm64, the wheel's tag is macosx_11_0_arm64",
        ),
        (
            "py3-none-macosx_10_9_universal2", {"toy__dylib": BOTH}, "PLG203",
            "needs macosx_10_13_x86_64, the wheel's tag is macosx_10_9_universal2",
        ),
        (
            "cp312-cp312-macosx_11_0_arm64", {"toy__dylib": macho()}, "PLG205",
            "only for cp312, and has no extension module",
        ),
    ],
)  # fmt: skip
def test_a_defect_is_found(tmp_path, tag, members, code, text):
    seen = found(tmp_path, tag, **members)
    assert {each for each, _ in seen} == {code}, seen
    assert len(seen) == 1, seen
    assert text in seen[0][1], seen


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (macho(), "toy.so is a library for macOS, and lief, which reads those, is not here"),
        (pe(), "toy.so is a library for Windows, and lief, which reads those, is not here"),
    ],
)
def test_only_libraries_of_other_systems_need_lief(tmp_path, monkeypatch, data, text):
    monkeypatch.setitem(sys.modules, "lief", None)
    assert found(tmp_path, "py3-none-linux_x86_64", toy__so=plugin_bytes()) == []
    with pytest.raises(PjrtHubError, match=text) as caught:
        found(tmp_path, "py3-none-linux_x86_64", toy__so=data)
    assert caught.value.hint == "pip install 'pjrt-hub[kit]'"
