"""The examples as a user runs them: each in its own process, by what it prints."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    """Runs an example in the tests' interpreter."""
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=300
    )


def test_hello_prints_the_result_and_the_device():
    done = run("hello.py")
    assert done.returncode == 0, done.stderr
    numbers = re.search(r"tanh\(a \* b \+ 1\) = \[(.*)\]", done.stdout)[1].split()
    assert np.allclose(np.array(numbers, float), np.tanh(np.arange(8) * 0.25 + 1), atol=1e-4)
    assert re.search(r"computed on .*cpu", done.stdout, re.IGNORECASE)


def test_embed_prints_the_similarity_of_two_sentences():
    done = run("minilm/embed.py", "How do I reset my password?", "I forgot my login credentials.")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "similarity 0.637\n"


def test_embed_prints_a_matrix_of_three_sentences():
    sentences = ["a cat", "a kitten", "the stock market"]
    done = run("minilm/embed.py", *sentences)
    assert done.returncode == 0, done.stderr
    rows = [line.split(maxsplit=3) for line in done.stdout.splitlines()]
    matrix = np.array([row[:3] for row in rows], dtype=float)
    assert [row[3] for row in rows] == sentences
    assert np.allclose(np.diag(matrix), 1)
    assert np.array_equal(matrix, matrix.T)
    assert matrix[0, 1] > 0.7 > 0.4 > max(matrix[0, 2], matrix[1, 2])


def test_embed_asks_for_two_sentences():
    done = run("minilm/embed.py", "alone")
    assert done.returncode == 2
    assert "usage:" in done.stderr
