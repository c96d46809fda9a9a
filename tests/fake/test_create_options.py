"""Create options found by sending wrong types, in plugins that abort, refuse, ignore or hang."""

from __future__ import annotations

import os

import pytest

from pjrt_hub.authoring import create_options, identity
from pjrt_hub.errors import PluginCrashedError, PluginTimeoutError

#: Runs `{what}` for each option that is called stub_streams and is of another type than int64.
WRONG = """
for (size_t i = 0; i < args->num_options; i++) {{
  const PJRT_NamedValue *each = &args->create_options[i];
  const char *name = "stub_streams";
  if (each->name_size != 12 || memcmp(each->name, name, 12) != 0) {{ {other}; continue; }}
  if (each->type != PJRT_NamedValue_kInt64) {what};
}}
""".replace("\n", " ")
REFUSE = 'return fail(3, "its expected type index is 1")'


@pytest.fixture
def find(stub, environment):
    """`find(...)` compiles a stub with what it does to options, and asks it for them."""

    def found(on_create, *names, **kwargs):
        path = stub(f"ON_CREATE={on_create}")
        candidates = create_options.candidates(path, names)
        return create_options.find(path, candidates, environment, **kwargs)

    return found


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("abort()", "(void)0"),
        ('return fail(3, "another type")', "(void)0"),
        (REFUSE, 'return fail(3, "no such option")'),
    ],
    ids=["aborts", "refuses", "refuses_strangers_too"],
)
def test_an_option_and_its_type_are_found(find, what, other):
    """Its name is in the binary, and nobody told it."""
    client, options = find(WRONG.format(what=what, other=other))
    assert [(option.name, option.type) for option in options] == [("stub_streams", "int64")]
    assert (client.platform, client.refusal) == ("cpu", "")


def test_a_name_that_is_known_of_others_is_asked_for(find):
    assert find("(void)0", "memory_fraction")[1] == ()


def test_a_plugin_without_its_hardware_still_tells_its_options(find):
    on_create = WRONG.format(what=REFUSE, other="(void)0") + ' return fail(9, "no device")'
    client, [option] = find(on_create)
    assert (option.name, option.type) == ("stub_streams", "int64")
    assert client.refusal == "PJRT_Client_Create: no device"


def test_a_plugin_that_always_dies_is_told(find):
    with pytest.raises(PluginCrashedError, match="with no option ended its process") as caught:
        find("abort()")
    assert (caught.value.signal, caught.value.returncode) == ("SIGABRT", -6)


def test_a_plugin_that_hangs_is_left(find):
    with pytest.raises(PluginTimeoutError, match="did not say in time"):
        find("nap(60)", seconds=1)


def test_what_is_known_of_an_option_elsewhere_is_taken_over(stub, monkeypatch, environment):
    """Its limits keep users from values that end the process."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = WRONG.format(what="abort()", other="(void)0").replace("stub_streams", "cpu_device_count")
    library = stub(f"ON_CREATE={text.replace('12', '16')}")
    found = identity.identify(library)
    [option] = found.options
    assert (option.name, option.type, option.minimum, option.maximum) == (
        "cpu_device_count", "int64", 0, 4096,
    )  # fmt: skip
    assert (found.platform, found.nbytes) == ("cpu", os.path.getsize(library))
