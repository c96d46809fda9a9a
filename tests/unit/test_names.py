"""Names: what may be one, and what one could be mistaken for."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjrt_hub.finding.contract.names import canonical, did_you_mean, is_name, look_alike

KNOWN = ("cpu", "cuda", "cuda13", "metal", "rocm", "tpu")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("cda", "cuda"),  # a letter less
        ("cudaa", "cuda"),  # a letter more
        ("cuba", "cuda"),  # another letter
        ("cdua", "cuda"),  # two swapped
        ("cuda14", "cuda13"),
        ("cu_da", "cuda"),
        ("rocrn", "rocm"),
        ("meta1", "metal"),
        ("_m_e_t_a_i", "metal"),
        ("cpu", ""),  # known, as "tpu" is
        ("cuda_fast", ""),
        ("intel", ""),
    ],
)
def test_what_a_name_could_be_mistaken_for(name: str, meant: str):
    assert look_alike(name, KNOWN) == meant


@given(st.text(min_size=1, max_size=40))
def test_a_name_is_ascii(text: str):
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert is_name(text) == (set(text) <= allowed and len(text) <= 32)


@given(st.text("abcud0_", min_size=1, max_size=8), st.text("abcud0_", min_size=1, max_size=8))
def test_likeness_is_mutual_and_one_edit_is_seen(one: str, other: str):
    assert bool(look_alike(one, [other])) == bool(look_alike(other, [one]))
    for edited in (one[1:], f"{one}x", f"x{one[1:]}", one[1::-1] + one[2:]):
        assert edited in ("", one) or look_alike(edited, [one]) == one


def test_did_you_mean_is_a_text():
    assert did_you_mean("cdua", KNOWN) == "did you mean 'cuda' or 'cuda13'?"
    assert did_you_mean("nothing", KNOWN) == ""


@given(st.text(alphabet="aB1-_.İ", max_size=12))
def test_distributions_are_compared_as_packaging_does(text: str):
    assert canonical(text) == re.sub(r"[-_.]+", "-", text).lower()
