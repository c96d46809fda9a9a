"""A wheel with a native library: its tag, its metadata, its bytes.

The same files give the same bytes, whenever and wherever they are packed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.finding.contract.binary import Binary

#: The oldest glibc that tags in the library `packaging` name, by architecture.
_OLDEST = {"x86_64": (2, 5), "i386": (2, 5)}
_OLDEST_ELSEWHERE = (2, 17)
_APPLE = {"macos": "macosx"}
_FIRST_YEAR = 315532800  # A zip file cannot date its members before 1980-01-01.
_SOME_DAY = 1_577_836_800  # Without SOURCE_DATE_EPOCH, members are dated 2020-01-01.
_CHUNK_NBYTES = 1 << 20


def platform_tag(binary: Binary) -> str:
    """Return the tag of the oldest platform that runs a library: "manylinux_2_27_x86_64"."""
    if binary.system == "windows":
        return {"x86_64": "win_amd64", "aarch64": "win_arm64"}.get(binary.machine, "win32")
    if binary.system != "linux":
        arch = {"aarch64": "arm64"}.get(binary.machine, binary.machine)
        major, minor = (*(binary.minimum or (10, 9)), 0)[:2]
        if major > 10:  # From macOS 11 on, the second number in a tag is 0.
            major, minor = major + (minor > 0), 0
        return f"{_APPLE.get(binary.system, binary.system)}_{major}_{minor}_{arch}"
    oldest = _OLDEST.get(binary.machine, _OLDEST_ELSEWHERE)
    major, minor = max(binary.glibc[:2], oldest)
    return f"manylinux_{major}_{minor}_{binary.machine}"


def normalize_version(version: str) -> str:
    """Return a version in its canonical form, "1.2.0rc1" for "1.2.0-rc.1", or refuse it."""
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(version))
    except InvalidVersion:
        raise PjrtHubError(
            f"{version!r} is not a version", hint="give one such as 1.2.0 or 1.2.0rc1"
        ) from None


def epoch(env: Mapping[str, str]) -> int:
    """Return the date of a wheel's members in seconds: SOURCE_DATE_EPOCH, or always the same."""
    text = env.get("SOURCE_DATE_EPOCH") or str(_SOME_DAY)
    if not text.isdecimal():
        raise PjrtHubError(
            f"SOURCE_DATE_EPOCH is {text!r}, which is not a number of seconds",
            hint="set it to the time of the commit: `git log -1 --format=%ct`",
        )
    return int(text)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel to be written."""

    distribution: str  # The name of the distribution, with dashes.
    version: str
    platform_tag: str
    metadata: str  # The text of METADATA.
    entry_points: str  # The text of entry_points.txt.

    @property
    def file_name(self) -> str:
        """The wheel's file name, in the form that the specification of wheels demands."""
        return f"{self._stem}-py3-none-{self.platform_tag}.whl"

    @property
    def _stem(self) -> str:
        return f"{self.distribution.replace('-', '_')}-{self.version}"

    def write(self, folder: Path, files: Mapping[str, str | Path], *, seconds: int) -> Path:
        """Write the wheel into a folder in one step, also over an older one, and return its path.

        The `files` are given by their paths in site-packages, as text or as the file with the
        bytes. All members get the same time, `seconds` since 1970.
        """
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / self.file_name
        moment = time.gmtime(max(seconds, _FIRST_YEAR))[:6]
        info = f"{self._stem}.dist-info"
        tag = f"py3-none-{self.platform_tag}"
        last = {
            f"{info}/METADATA": self.metadata,
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: pjrt-hub\n"
            f"Root-Is-Purelib: false\nTag: {tag}\n",
            f"{info}/entry_points.txt": self.entry_points,
        }
        rows: list[str] = []
        # No other call writes to a temporary file of this name.
        partial = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
        try:
            with zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED) as archive:
                for name, content in {**files, **last}.items():
                    rows.append(_add(archive, name, content, moment))
                record = f"{info}/RECORD"
                _add(archive, record, "".join(rows) + f"{record},,\n", moment)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        return target


def _add(archive: zipfile.ZipFile, name: str, content: str | Path, moment: tuple[int, ...]) -> str:
    """Add a member to the archive and return its row of RECORD."""
    member = zipfile.ZipInfo(name, moment)  # type: ignore[arg-type]
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system = 3  # 3 stands for Unix, whose permissions follow.
    executable = isinstance(content, Path)
    member.external_attr = (0o100755 if executable else 0o100644) << 16
    source = content.open("rb") if isinstance(content, Path) else BytesIO(content.encode())
    with source, archive.open(member, "w", force_zip64=executable) as out:
        shutil.copyfileobj(source, out, _CHUNK_NBYTES)
        nbytes = source.tell()
        source.seek(0)
        digest = hashlib.file_digest(source, "sha256").digest()
    hashed = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return f"{name},sha256={hashed},{nbytes}\n"
