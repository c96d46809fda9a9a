"""Create options found by sending wrong types, in plugins that abort, refuse, ignore or hang."""

from __future__ import annotations

import os

import pytest

from pjrt_hub.errors import PluginCrashedError, PluginTimeoutError
from pjrt_hub.kit.authoring import identity
from pjrt_hub.kit.conformance import create_options

#: C code: `{what}` runs if stub_streams is no int64, `{other}` runs for an option of another name.
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
def styled(stub, environment):
    """`styled(stranger, mistyped, value)` gives the types of options found in such a stub."""

    def found(stranger, mistyped, value="(void)0", names=()):
        path = stub(f"STRANGER={stranger}", f"MISTYPED={mistyped}", f"VALUE={value}")
        candidates = [f"stub_{kind}" for kind in FIVE] + ["memory_fraction", *names]
        _, options = create_options.find(path, candidates, environment)
        return {option.name: option.type for option in options}

    return found


@pytest.fixture
def find(stub, environment):
    """`find(on_create, ...)` finds the options of a stub that runs this code in Client_Create."""

    def found(on_create, *names, **kwargs):
        path = stub(f"ON_CREATE={on_create}")
        candidates = create_options.candidates(path, names)
        return create_options.find(path, candidates, environment, **kwargs)

    return found


FIVE = ("string", "int64", "int64_list", "float", "bool")
EACH = {f"stub_{kind}": kind for kind in FIVE}
#: Ways in which a plugin treats an option of an unknown name.
STRANGERS = {
    "ignores": "(void)0",
    "refuses": 'REFUSE("no such option")',
    "refuses in its own words": 'REFUSE("Never heard of \\"%1$s\\"!")',
    "refuses with the type": 'REFUSE("%1$s (%3$s) is unknown")',
    "aborts": "abort()",
}
#: Ways in which a plugin treats a value of the wrong type.
MISTYPED = {
    "aborts": "abort()",
    "refuses": 'REFUSE("bad option")',
    "refuses by name": 'REFUSE("%1$s is of another type")',
    "says what it wants": 'REFUSE("%1$s must be a %2$s")',
    "says both": 'REFUSE("expected %2$s, found %3$s")',
    "refuses as unknown": 'REFUSE("no such option")',
}
STYLES = [
    *((stranger, mistyped) for stranger in ("ignores", "refuses") for mistyped in MISTYPED),
    *((stranger, "refuses by name") for stranger in STRANGERS),
    ("aborts", "aborts"),
]


@pytest.mark.parametrize(("stranger", "mistyped"), dict.fromkeys(STYLES))
@pytest.mark.slow
@pytest.mark.night
def test_five_types_are_found_however_a_plugin_refuses(styled, stranger, mistyped):
    assert styled(STRANGERS[stranger], MISTYPED[mistyped]) == EACH


#: Refuses a value, in other words than those about a type.
UNUSUAL = 'REFUSE("%1$s is out of range")'


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.slow
@pytest.mark.night
def test_options_that_take_no_usual_value_are_known_by_what_is_asked_for(styled, stranger):
    assert styled(STRANGERS[stranger], MISTYPED["says both"], UNUSUAL) == EACH


def test_options_that_look_at_the_value_are_given_others(styled):
    strict = 'if (wanted == 1 && given->int64_value < 2) REFUSE("bad option")'
    assert styled(STRANGERS["refuses"], MISTYPED["refuses"], strict) == EACH


@pytest.mark.parametrize(
    ("mistyped", "value"),
    [
        ("(void)0", "(void)0"),  # every type is taken
        ("abort()", "abort()"),  # no type is taken
        (MISTYPED["refuses"], MISTYPED["refuses"]),
        (MISTYPED["refuses"], 'REFUSE("out of range")'),  # neither text is about a type
    ],
)
@pytest.mark.slow
@pytest.mark.night
def test_a_type_that_does_not_show_is_said_to_be_unknown(styled, mistyped, value):
    assert styled(STRANGERS["refuses"], mistyped, value) == dict.fromkeys(EACH, "unknown")


@pytest.mark.parametrize("wanted", range(5))
@pytest.mark.slow
def test_an_option_of_two_types_has_none(styled, wanted):
    """The plugin takes the option with either of the two types."""
    both = f'if (wanted == {wanted} && given->type == {(wanted + 1) % 5}) continue; REFUSE("bad")'
    assert styled(STRANGERS["refuses"], both) == {**EACH, f"stub_{FIVE[wanted]}": "unknown"}


def test_a_plugin_that_takes_everything_shows_no_options(styled):
    assert styled("(void)0", "(void)0") == {}


def test_a_name_that_reminds_a_plugin_of_another_is_none(styled):
    meant = '"no such option; did you mean stub_int64?"'
    hinting = f'if (given->name_size == 11) REFUSE({meant}); REFUSE("no such option")'
    assert styled(hinting, MISTYPED["refuses"], names=("stub_int640", "stub_str")) == EACH


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
    """The name of the option is found in the binary; nobody gives it."""
    client, options = find(WRONG.format(what=what, other=other))
    assert [(option.name, option.type) for option in options] == [("stub_streams", "int64")]
    assert (client.platform, client.refusal) == ("cpu", "")


def test_a_plugin_without_its_hardware_still_tells_its_options(find):
    on_create = WRONG.format(what=REFUSE, other="(void)0") + ' return fail(9, "no device")'
    client, [option] = find(on_create)
    assert (option.name, option.type) == ("stub_streams", "int64")
    assert client.refusal == "PJRT_Client_Create: no device"


def test_a_plugin_that_always_dies_is_told(find):
    said = "died of SIGABRT as it made a client with no option"
    with pytest.raises(PluginCrashedError, match=said) as caught:
        find("abort()")
    assert (caught.value.signal, caught.value.returncode) == ("SIGABRT", -6)


def test_a_plugin_that_hangs_is_left(find):
    with pytest.raises(PluginTimeoutError, match="did not say in time"):
        find("nap(60)", seconds=1)


def test_what_is_known_of_an_option_elsewhere_is_taken_over(stub, monkeypatch, environment):
    """The limits of the option keep users from values that would end the process."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = WRONG.format(what="abort()", other="(void)0").replace("stub_streams", "cpu_device_count")
    library = stub(f"ON_CREATE={text.replace('12', '16')}")
    found = identity.identify(library)
    [option] = found.options
    assert (option.name, option.type, option.minimum, option.maximum) == (
        "cpu_device_count", "int64", 1, 4096,
    )  # fmt: skip
    assert (found.platform, found.nbytes) == ("cpu", os.path.getsize(library))
