"""The headers of the real library, unchanged and changed as an attacker would change them."""

from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.contract.binary import unfit
from pjrt_hub.finding.contract.headers import inspect


def test_the_real_library(plugin):
    elf = inspect(plugin.path)
    assert elf.exported
    assert elf.glibc == (2, 27)
    assert "libc.so.6" in elf.needed
    has_own = {"0.81": False, "0.106": True, "0.115": False}[str(plugin.api_version)]
    assert ("libstdc++.so.6" in elf.needed) is not has_own  # it has its own copy otherwise
    assert unfit(elf, HostTag.current()) == []
