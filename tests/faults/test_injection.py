"""Every system call of a publication fails in every way: no bad entry, and only our errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from forks import COMMIT, Forks
from toy import Toy

from pjrt_hub.finding.store.cache.cache import Cache

#: What only looks.
LOOKS = (
    *("statfs", "fstatfs", "stat", "lstat", "fstat", "newfstatat", "statx", "access"),
    *("read", "pread64", "lseek", "getdents64", "readlink", "readlinkat"),
)
ERRORS = (
    *("EIO", "ENOSPC", "EDQUOT", "EPERM", "EACCES", "EXDEV", "ENOLCK", "ENOSYS", "EROFS"),
    *("EINTR", "EMFILE"),
)


def test_every_call_and_error(
    strace: str,
    forks: Forks,
    toy: Toy,
    cache: Cache,
    given: dict,
    tmp_path: Path,
    tally: Callable[[str], None],
    rounds: Callable[[int, int], int],
) -> None:
    calls = forks.calls(tmp_path / "log", "fetch", COMMIT + LOOKS, **given)
    draw, pairs, injections = random.Random(5), 0, 0
    errors: dict[str, int] = {}
    bad, foreign = [], []
    for name, count in calls.items():
        for error in ERRORS:
            pairs += 1
            for n in draw.sample(range(1, count + 1), rounds(1, count)):
                injections += 1
                cache.clear()
                fork = forks.fork("fetch", **given).inject(f"error={error}", name, n)
                ended = fork.go().ended()
                errors[ended.error] = errors.get(ended.error, 0) + 1
                where = f"{name} {error} {n}"
                foreign += [] if ended.ours else [f"{where}: {ended.told}"]
                bad += [f"{where}: {each}" for each in toy.audit(cache)]
                bad += [f"{where}, then: {each}" for each in toy.heal(cache)]
    done = errors.pop("", 0)
    tally(
        f"failing system calls: {pairs} pairs of call and error, {injections} injections: "
        f"{len(bad)} bad entries, {len(foreign)} foreign tracebacks, "
        f"{done} fetches done all the same, {sum(errors.values())} refused"
    )
    assert bad == []
    assert foreign == []
