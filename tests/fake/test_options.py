"""The layer `options`: what a plugin gets in place of the host's create options."""

from __future__ import annotations

import pytest
from stubbed import func, path, raises, with_stub

from pjrt_hub.errors import InvalidArgumentError, PjrtError, PjrtHubError, UnimplementedError
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.interpose import forwarding, layers
from pjrt_hub.running.interpose.forwarding import Changes
from pjrt_hub.running.program import compile_options

#: The host's options.
OWN = {"depth": 3, "mode": "slow", "premapped": 9, "share": 0.5}
#: A plugin that refuses each client with the options that it got, as "name:type=value".
TELLS = """
char *text = calloc(1, 2000);
strcpy(text, "got ");
for (size_t i = 0; i < args->num_options; i++) {
  const PJRT_NamedValue *each = &args->create_options[i];
  char *end = text + sprintf(text + strlen(text), "%.*s=", (int)each->name_size, each->name);
  end = text + strlen(text);
  switch ((int)each->type) {
    case 0: sprintf(end, "'%.*s' ", (int)each->value_size, each->string_value); break;
    case 1: sprintf(end, "%lld ", (long long)each->int64_value); break;
    case 2: sprintf(end, "[%lld,%lld;%d] ", (long long)each->int64_array_value[0],
                    (long long)each->int64_array_value[1], (int)each->value_size); break;
    case 3: sprintf(end, "%.2f ", each->float_value); break;
    default: sprintf(end, "%s ", each->bool_value ? "yes" : "no");
  }
}
return fail(3, text);
""".replace("\n", " ")


def got(rules):
    """What the plugin gets of a host that sends `OWN`, through the layer or without it."""
    through = None if rules is None else layers.read("options", options=rules).wrap
    plugin = Plugin(load(path, through=through))
    message = raises(InvalidArgumentError, plugin.client, OWN).message
    return message.removeprefix("PJRT_Client_Create: got").strip()


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        (None, "depth=3 mode='slow' premapped=9 share=0.50"),
        ("", ""),
        ("depth;share", "depth=3 share=0.50"),
        ("depth;absent", "depth=3"),
        ("depth=7", "depth=7"),
        ("mode;depth=-7;on=true;off=false", "mode='slow' depth=-7 on=yes off=no"),
        ("share=1e2;mode=fast;name='a;b=4'", "share=100.00 mode='fast' name='a;b=4'"),
        ("size='4';ids=[1,-2]", "size='4' ids=[1,-2;2]"),
    ],
)
@with_stub(f"ON_CREATE={TELLS}")
def test_options_pass_by_the_rules(rules, wanted):
    assert got(rules) == wanted


def test_a_host_in_c_that_was_preloaded_into(host):
    names = {"PJRT_HUB_LAYERS": "options", "PJRT_HUB_OPTIONS": "depth=3"}
    prints = TELLS.replace("return fail(3, text)", "puts(text)")
    ended = host("nothing", f"ON_CREATE={prints}", **names)
    assert (ended.returncode, ended.stdout) == (0, "got depth=3 \n"), ended.stderr


@with_stub("ACCEPTS_ALL", other="MINOR=116")
def test_a_library_that_a_host_has_opened_is_taken_over(other):
    """Its own table is the stub's then, with other create options, flags, and refusals."""
    added = compile_options.write_flags({"xla_stub": True})
    words = {"secret": "this plugin has no secret\n\nhint: leave it out"}
    forwarding.take_over(other, load(path).address, path, Changes("depth=7", added, words))
    taken = Plugin(load(other))
    assert taken.api_version.minor != 116  # That is the version of the library's own table.
    client = taken.client(OWN)
    assert client.compile(func("add")).compile_options.flags == {"xla_stub": True}
    refused = raises(UnimplementedError, client.compile, func("secret"))
    assert "this plugin has no secret" in str(refused)
    assert "hint: leave it out" in str(refused)
    with pytest.raises(PjrtError, match="word"):
        client.compile(func("reject error=13:word"))


@pytest.mark.parametrize("rules", ["=3", "a=", "a='", "a=[1", "a b", "a='b'c"])
def test_malformed_rules_are_refused(rules):
    with pytest.raises(PjrtHubError, match="the layer options has no rule"):
        layers.read("options", options=rules)


def test_rules_that_are_missing_are_asked_for():
    with pytest.raises(PjrtHubError, match="the layer options has no rules"):
        layers.read("options")


@pytest.mark.parametrize(
    ("value", "rule"),
    [(4, "a=4"), (True, "a=true"), (0.5, "a=0.5"), ("b;c", "a='b;c'"), ((1, 2), "a=[1,2]")],
)
def test_a_value_is_written_as_a_rule(value, rule):
    assert layers.option_rule("a", value) == rule
    assert layers.option_rules(rule) == rule


def test_a_text_with_a_quote_cannot_be_written():
    with pytest.raises(ValueError, match="no rule can hold a quote"):
        layers.option_rule("a", "it's")
