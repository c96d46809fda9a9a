"""Several threads at once, for checks of what a plugin must bear from them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pjrt_hub.kit.conformance.finding import Hidden

_Answer = TypeVar("_Answer")


def at_once(functions: Sequence[Callable[[], _Answer]]) -> list[_Answer | Exception]:
    """Run each in a thread of its own, at once: what each gave or raised; only Hidden is raised."""
    answers: list[Any] = [None] * len(functions)
    together = threading.Barrier(len(functions))

    def run(index: int) -> None:
        together.wait()
        try:
            answers[index] = functions[index]()
        except Exception as exc:
            answers[index] = exc

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(functions))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for answer in answers:
        if isinstance(answer, Hidden):
            raise answer
    return answers
