"""Fuzzes every parser of bytes that others wrote: `python tests/fuzz FOLDER SECONDS [PARSER...]`.

FOLDER keeps each parser's corpus for the next run, and its findings. The exit status is 1 where
there was one: a traceback that is not ours, 10 seconds or 1 GiB for one input.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "unit"))


def main() -> int:
    """Run the parsers one after the other."""
    from parsers import PARSERS

    folder, seconds, *parsers = Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    return 1 if sum(fuzz(parser, folder, seconds) for parser in parsers or sorted(PARSERS)) else 0


def fuzz(parser: str, folder: Path, seconds: int) -> int:
    """Run one parser, print its line, and say how many findings there are."""
    findings = folder / "findings" / parser
    findings.mkdir(parents=True, exist_ok=True)
    log = folder / f"{parser}.log"
    options = [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=1024"]
    options += [f"-artifact_prefix={findings}/", "-print_final_stats=1", "-max_len=65536"]
    with log.open("wb") as out:
        command = [sys.executable, str(HERE / "target.py"), parser, str(folder / parser), *options]
        done = subprocess.run(command, stdout=out, stderr=out, timeout=seconds + 300)
    told = log.read_text("utf-8", "replace")
    executions = re.findall(r"stat::number_of_executed_units: +(\d+)", told)
    memory = re.findall(r"stat::peak_rss_mb: +(\d+)", told)
    found = sorted(findings.iterdir())
    print(
        f"fuzz {parser}: {int(executions[-1]) if executions else 0:,} executions in {seconds} s, "
        f"{len(found)} findings, peak {memory[-1] if memory else '?'} MiB",
        flush=True,
    )
    for path in found:
        print(f"  {path}")
    if done.returncode and not found:
        print("".join(told.splitlines(keepends=True)[-20:]), end="")
    return len(found) or int(bool(done.returncode))


if __name__ == "__main__":
    sys.exit(main())
