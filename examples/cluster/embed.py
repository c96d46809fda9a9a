"""Embeds many sentences on a Dask cluster of this machine, whose workers may die.

python examples/cluster/embed.py --workers 2 --kill
"""

import argparse
import os
import signal
import time
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import work
from distributed import Client, LocalCluster, as_completed


def sentences(count: int) -> list[str]:
    """That many, no two of them alike."""
    who = ("The ferry", "A cat", "My neighbour", "The committee", "Every second engineer")
    does = ("sleeps", "waits", "turns back", "disagrees", "arrives late")
    where = ("in the harbour", "by the window", "after the storm", "without a reason")
    phrases = [" ".join(words) for words in product(who, does, where)]
    return [f"{phrases[i % len(phrases)]}, {i // len(phrases)} days on." for i in range(count)]


def embed(cluster: Client, texts: list[str], kill: bool = False) -> list[work.Embedded]:
    """Embeds batches of texts on the cluster's workers.

    Args:
        cluster: the workers.
        texts: what to embed, in order.
        kill: ends the worker that is done with the first batch, by SIGKILL. Dask computes what it
            was computing, and whatever it still held, elsewhere.

    Returns:
        The batches in order; with `kill` the first again behind them, for its process to be known.
    """
    batches = [texts[start : start + work.BATCH] for start in range(0, len(texts), work.BATCH)]
    futures = cluster.map(work.embed, batches, pure=False)
    victims = []
    if kill:
        victims = [next(as_completed(futures)).result()]
        os.kill(victims[0].process, signal.SIGKILL)
    return cluster.gather(futures) + victims


def main() -> None:
    """Print how long it took, who did how much, and how often the program was compiled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="a text a line (default: made up)")
    parser.add_argument("--texts", type=int, default=2000, help="how many to make up")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="kill a worker in the middle")
    parser.add_argument("-o", "--output", type=Path, help="write the vectors here, as .npy")
    options = parser.parse_args()
    texts = options.file.read_text().splitlines() if options.file else sentences(options.texts)

    local = {"n_workers": options.workers, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**local) as local_cluster, Client(local_cluster) as cluster:
        began = time.perf_counter()
        done = embed(cluster, texts, options.kill)
        seconds = time.perf_counter() - began

    batches = done[:-1] if options.kill else done
    vectors = np.concatenate([batch.vectors for batch in batches])
    if options.output:
        np.save(options.output, vectors)
    first = {batch.process: batch for batch in done}
    print(f"{len(vectors)} texts in {seconds:.1f} s")
    print("batches of each process:", *Counter(batch.process for batch in batches).values())
    print(f"compiled {sum(b.compiled for b in first.values())} times,", end=" ")
    print(f"found in the cache {sum(b.loaded for b in first.values())} times")


if __name__ == "__main__":
    main()
