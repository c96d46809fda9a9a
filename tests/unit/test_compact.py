"""Compact classes are the classes that were written, over the call path's types."""

from __future__ import annotations

import gc

import pytest

from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi.handle import compact


@compact
class Call(hotpath.BoundCall):
    """What a statement says."""

    __slots__ = ()
    number = 7

    def __repr__(self) -> str:
        return f"<call {self.number}>"


def test_it_is_what_the_statement_says():
    assert (Call.__name__, Call.__qualname__, Call.__module__) == ("Call", "Call", __name__)
    assert Call.__doc__ == "What a statement says."
    assert Call.__mro__ == (Call, hotpath.BoundCall, object)
    assert repr(Call()) == "<call 7>"
    assert not hasattr(Call(), "__dict__")
    assert not hasattr(Call, "__slots__")


def test_the_class_of_the_statement_is_forgotten():
    gc.collect()
    named = [each for each in hotpath.BoundCall.__subclasses__() if each.__name__ == "Call"]
    assert named == [Call]


def test_another_base_is_refused():
    with pytest.raises(TypeError, match=r"Device: <class '.*Client'> has no compact subclasses"):

        @compact
        class Device(hotpath.Client):
            pass
