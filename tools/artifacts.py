"""Writes the portable artifacts of the programs that checks send: `python tools/artifacts.py`.

It makes each check on the CPU plugin in a process of its own, to see what is sent, and needs the
dependency group `corpus`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import pjrt_hub  # noqa: E402  (found through the path above)
from pjrt_hub.kit.conformance import artifact, corpus, programs, separate_process  # noqa: E402
from pjrt_hub.kit.conformance.artifact import PortableArtifact  # noqa: E402
from pjrt_hub.kit.conformance.check import Check, select  # noqa: E402
from pjrt_hub.kit.conformance.checks import runtime  # noqa: E402
from pjrt_hub.kit.conformance.subject import Subject  # noqa: E402
from pjrt_hub.running.array import dtypes  # noqa: E402

#: The versions at which the serializer's output may change; 1.0 has the stable form of bytecode.
_STABLE = [(1, minor, 0) for minor in range(18)]
#: The older versions of a + b that checks send, because a plugin may read programs that old.
_OLD = [(0, minor, 0) for minor in range(9, 21)]
_SECONDS = 30


def sent(check: Check, path: Path) -> list[str]:
    """Return the texts that a check sends to a plugin."""

    def work(tell: Callable[[str], None]) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # A plugin reports its own death on stderr.

        def encode_program(_subject: Subject, text: str) -> str:
            tell(json.dumps(text))
            return text

        Subject.encode_program = encode_program  # type: ignore[method-assign]
        devices = max(check.num_devices, 1)
        check.run(Subject(path, {"cpu_device_count": devices}))

    lines, _ = separate_process.attempt(work, _SECONDS)
    return [json.loads(line) for line in lines]


def texts(areas: Iterable[str] = ()) -> Iterator[str]:
    """Return the text of each program that checks send, some more than once.

    Args:
        areas: of the checks; by default all.
    """
    path = Path(pjrt_hub.fetch("cpu"))
    for check in select(areas):
        if check.area != "ops" and check.loads:
            yield from sent(check, path)


def more_texts() -> Iterator[str]:
    """Return the text of each that other plugins are sent, and of the corpus."""
    yield programs.many_products()
    for kind in dtypes.ELEMENT_TYPES:
        yield runtime.reversal(kind.name)
    for program in corpus.programs():
        yield program.text(constants=False)
        yield program.text(constants=True)


class Serializer:
    """StableHLO's own, of jaxlib."""

    def __init__(self) -> None:
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo
        from jaxlib.mlir.passmanager import PassManager

        self._ir, self.dialect, self._passes = ir, stablehlo, PassManager
        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        self.context = ir.Context()
        self.context.append_dialect_registry(registry)
        self.context.load_all_available_dialects()
        for register in (
            stablehlo.register_dialect,
            chlo.register_dialect,
            sdy.register_dialect,
            mhlo.register_mhlo_dialect,
        ):
            register(self.context)

    def module(self, text: str) -> object:
        """Return a program without the lines that its parts came from.

        Raises:
            Exception: it is none.
        """
        with self.context:
            module = self._ir.Module.parse(text)
            self._passes.parse("builtin.module(strip-debuginfo)").run(module.operation)
            return module

    def bytecode(self, text: str) -> bytes:
        """Return a program in MLIR's bytecode."""
        file = io.BytesIO()
        self.module(text).operation.write_bytecode(file)  # type: ignore[attr-defined]
        return file.getvalue()

    def artifacts(self, text: str) -> list[PortableArtifact]:
        """Return what is written for each version that differs in more than its name, or ""."""
        try:
            module = self.module(text)
        except Exception:  # The exceptions of nanobind and MLIR have no common base.
            return []
        made = list[PortableArtifact]()
        for version in [*(_OLD if text == programs.ADD else ()), *_STABLE]:
            name = ".".join(map(str, version))
            try:
                with self.context:
                    code = self.dialect.serialize_portable_artifact(module, name)
            except Exception:  # The program is newer than this version.
                continue
            if not made or made[-1].at(version) != code:
                made.append(PortableArtifact(version, code))
        return made


def main() -> None:
    """Write the archive."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    serializer = Serializer()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # This hides a line for each old version.
    wanted = dict.fromkeys([*texts(), *more_texts()])
    made = {text: serializer.artifacts(text) for text in wanted}
    without = [text for text, artifacts in made.items() if not artifacts]
    for text in without:
        print("no artifact of:", text, sep="\n")
    archive = {text: artifacts for text, artifacts in made.items() if artifacts}
    artifact.PATH.write_bytes(artifact.pack(_STABLE[-1], archive))
    print(f"{len(archive)} programs, {artifact.PATH.stat().st_size} bytes in {artifact.PATH.name}")


if __name__ == "__main__":
    main()
