"""Sentence embeddings, by what the example prints."""

from __future__ import annotations

import numpy as np


def test_embed_prints_the_similarity_of_two_sentences(run):
    printed = run(
        "minilm/embed.py", "How do I reset my password?", "I forgot my login credentials."
    )
    assert printed == "similarity 0.637\n"


def test_embed_prints_a_matrix_of_three_sentences(run):
    sentences = ["a cat", "a kitten", "the stock market"]
    rows = [line.split(maxsplit=3) for line in run("minilm/embed.py", *sentences).splitlines()]
    matrix = np.array([row[:3] for row in rows], dtype=float)
    assert [row[3] for row in rows] == sentences
    assert np.allclose(np.diag(matrix), 1)
    assert np.array_equal(matrix, matrix.T)
    assert matrix[0, 1] > 0.7 > 0.4 > max(matrix[0, 2], matrix[1, 2])


def test_embed_asks_for_two_sentences(run):
    assert "usage:" in run("minilm/embed.py", "alone", status=2)
