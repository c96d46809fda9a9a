"""Listings: tuples to code, tables to people."""

import copy
import pickle
import re

import pytest

import pjrt_hub
from pjrt_hub.base.abi import Verdict
from pjrt_hub.base.listing import Listing, align, size_text
from pjrt_hub.errors import ClosedError

CHOSEN = pjrt_hub.Finding(
    *("cpu", "cpu", "0.0.1", pjrt_hub.ApiVersion(0, 81), 0, Verdict(True, ""), "entry point"),
    *("xla-cpu-pjrt 0.0.1", None, Verdict(True, "the only one"), True),
)
UNUSABLE = pjrt_hub.Finding(
    *("<tpu>", "", "", None, 0, Verdict(False, ""), "", "nowhere", None),
    *(Verdict(False, "it is\n  " + "far away " * 20), False),
)
FOUND = Listing([CHOSEN, UNUSABLE])
CHOSEN_LINE = "cpu   cpu       0.0.1    0.81  chosen: the only one"


class Gone:
    """Cannot be a row any more."""

    def _row(self):
        raise ClosedError("the client is closed")

    def __repr__(self):
        return "<Gone>"


def test_it_is_a_tuple():
    assert FOUND == (CHOSEN, UNUSABLE)
    assert (len(FOUND), FOUND[0], FOUND[1:], list(FOUND)) == (2, CHOSEN, (UNUSABLE,), [*FOUND])
    assert type(FOUND[:1]) is Listing
    assert hash(FOUND) == hash((CHOSEN, UNUSABLE))
    assert FOUND + FOUND[:1] == (CHOSEN, UNUSABLE, CHOSEN)
    for again in (copy.copy(FOUND), copy.deepcopy(FOUND), pickle.loads(pickle.dumps(FOUND))):
        assert (again, type(again), repr(again)) == (FOUND, Listing, repr(FOUND))


def test_each_element_is_a_line():
    head, *lines = repr(FOUND).splitlines()
    assert head == "NAME   PLATFORM  VERSION  API   VERDICT"
    last = "<tpu>  -         -        -     no: it is " + "far away " * 20
    assert lines == ["cpu    cpu       0.0.1    0.81  chosen: the only one", f"{last[:97]}..."]
    assert repr(FOUND[:1]).splitlines() == ["NAME  PLATFORM  VERSION  API   VERDICT", CHOSEN_LINE]


def test_a_notebook_has_all_of_it():
    markup = FOUND._repr_html_()
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', markup)
    assert heads == ["name", "platform", "version", "api", "verdict"]
    assert re.findall(r'<th scope="row"[^>]*>(.*?)</th>', markup) == ["cpu", "&lt;tpu&gt;"]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", markup)
    assert cells[:4] == ["cpu", "0.0.1", "0.81", "chosen: the only one"]
    assert cells[-1] == "no: it is<br>  " + "far away " * 20
    assert [*map(len, re.findall(r'anywhere">(.*?)</td>', markup))] == [len(cells[-1])]
    assert "color" not in markup
    assert "class=" not in markup


def test_what_cannot_be_a_row_any_more_is_shown_as_in_a_tuple():
    gone = Listing([Gone()])
    assert (repr(gone), gone._repr_html_()) == ("(<Gone>,)", "<code>(&lt;Gone&gt;,)</code>")
    assert (repr(Listing([])), Listing([])._repr_html_()) == ("()", "<code>()</code>")


def test_columns_are_as_wide_as_what_they_hold():
    rows = [("a", "long  one", ""), ("bcdef", "", "x")]
    assert align(("one", "b", "c"), rows) == [
        "ONE    B         C",
        "a      long one",
        "bcdef            x",
    ]


def test_plugins_and_targets_are_listings(monkeypatch, tmp_path):
    monkeypatch.setenv("PJRT_HUB_CACHE", str(tmp_path))
    found = pjrt_hub.plugins(offline=True)
    assert type(found) is Listing
    assert repr(found).startswith("NAME ")
    assert len(repr(found).splitlines()) == 1 + len(found)
    known = pjrt_hub.targets("tpu")
    assert {type(each) for each in known} == {pjrt_hub.Target}
    assert repr(known).splitlines()[1].startswith("tpu:v2:2x2  ")


@pytest.mark.parametrize(
    ("nbytes", "of_file", "of_memory"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (1_536, "1.54 kB", "1.5 KiB"),
        (-(3 << 20), "-3.15 MB", "-3 MiB"),
        (999_700, "1 MB", "976.3 KiB"),
        (47_500_000_000, "47.5 GB", "44.24 GiB"),
        (1 << 60, "1.15e+06 TB", "1.049e+06 TiB"),
    ],
)
def test_sizes_have_the_largest_unit_of_which_there_is_one(nbytes, of_file, of_memory):
    assert (size_text(nbytes), size_text(nbytes, of_memory=True)) == (of_file, of_memory)
