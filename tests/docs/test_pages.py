"""The pages: links work, code runs, and commands and exit statuses are those of the program."""

import re
from pathlib import Path

import click
import numpy as np
import pytest
from markdown_it import MarkdownIt

from pjrt_hub.cli import status
from pjrt_hub.cli.__main__ import program

from .conftest import ROOT, beside_examples, floats, page

PAGES = [
    path
    for path in sorted(ROOT.rglob("*.md"))
    if not any(part[0] == "." or part == "build" for part in path.relative_to(ROOT).parts)
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLI = page("cli.md")


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links(path: Path) -> list[str]:
    tokens = MarkdownIt().parse(path.read_text(encoding="utf-8"))
    inline = [child for token in tokens for child in token.children or ()]
    return [str(token.attrs["href"]) for token in inline if token.type == "link_open"]


def marked(name: str) -> str:
    """The code in the README between `<!-- name -->` and `<!-- end -->`."""
    [block] = re.findall(rf"<!-- {name} -->\n```\w*\n(.*?)```\n<!-- end -->", README, re.DOTALL)
    return block


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_within_the_project_lead_somewhere(page):
    broken = []
    for link in links(page):
        target, _, fragment = link.partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists():
            broken.append(link)
        elif fragment:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            if fragment not in map(anchor, headings):
                broken.append(link)
    assert broken == []


RUNTIME = re.findall(r"```python\n(.*?)```", page("runtime.md"), re.DOTALL)[0]


@pytest.mark.parametrize(
    ("example", "x"),
    [(marked("example"), np.linspace(-1, 1, 8)), (RUNTIME, np.arange(8))],
    ids=["README.md", "docs/runtime.md"],
)
def test_the_first_example_runs(example, x, tmp_path):
    assert len(example.splitlines()) <= 8
    printed = floats(beside_examples(tmp_path, "-c", example))
    assert np.allclose(printed, np.tanh(x * x + 1), atol=1e-6)


def test_the_readme_shows_what_its_example_prints_and_one_line_for_each_main_job():
    x = np.linspace(-1, 1, 8)
    assert np.allclose(floats(marked("prints")), np.tanh(x * x + 1), atol=1e-6)
    assert len(README.splitlines()) <= 80
    for name, end in (("hello", "examples/hello.py"), ("tests", "nox")):
        [line] = marked(name).splitlines()
        assert line.startswith("python3 -m venv .venv && ")
        assert line.endswith(end)


#: Checks that must hold after the code of docs/performance.md, whose names they use.
CHECKED = """
expected = x
for _ in range(10):
    expected = np.tanh(expected * x + 1)
assert np.allclose(result, expected, atol=1e-6), result
assert len(results) == 4
following = np.tanh(expected * x + 1)
assert all(np.allclose(each, following, atol=1e-6) for each in results)
assert np.allclose(y.to_numpy(), following, atol=1e-6)
assert np.allclose(total.to_numpy(), 10 * x, atol=1e-5), total
assert (shared.to_numpy() == 1).all()
assert shared.to_numpy().ctypes.data == large.ctypes.data
assert 0 < per_call < 1
print("all of it")
"""


def test_the_code_of_the_page_of_performance_is_one_program_that_runs(tmp_path):
    text = page("performance.md")
    pieces = re.findall(r"<!-- runs -->\n```python\n(.*?)```", text, re.DOTALL)
    assert len(pieces) == text.count("```python")
    told = beside_examples(tmp_path, "-c", "\n".join([*pieces, CHECKED]))
    assert told == "all of it\n"


def commands(group: click.Group, *trail: str):
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from commands(command, *trail, name)
        else:
            yield " ".join([*trail, name]), command


@pytest.mark.parametrize(("name", "command"), list(commands(program)))
def test_every_command_and_option_is_documented_with_a_line_and_two_examples(name, command):
    [section] = re.findall(rf"^## `{name}\b.*?(?=^## |\Z)", CLI, re.MULTILINE | re.DOTALL)
    options = [option for param in command.params for option in param.opts if option[:2] == "--"]
    assert "--json" in options or name == "completion"
    everywhere = "`--json`--verbose"
    assert [option for option in options if f"`{option}" not in section + everywhere] == []
    assert not command.get_short_help_str(68).endswith("...")
    assert len(command.examples) == 2
    for example in command.examples:
        _, _, words = example.partition("pjrt-hub ")
        assert words.startswith(f"{name} ") or words in (name, f"{name})")
        known = {option for param in command.params for option in param.opts}
        left = words.partition(" -- ")[0].split()
        assert {word for word in left if word[:1] == "-" and not word[1:].isdigit()} <= known


def command_lines(page: Path) -> list[list[str]]:
    """The words after `pjrt-hub` in each command that a page shows in its text or code blocks."""
    tokens = MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))
    inline = [child for token in tokens for child in token.children or ()]
    shown = [token.content for token in inline if token.type == "code_inline"]
    shown += [
        line
        for token in tokens
        if token.type == "fence" and token.info != ""
        for line in token.content.splitlines()
    ]
    found = [re.search(r"(?:^|.*[\s/`])pjrt-hub +([a-z].*)", line) for line in shown]
    return [re.split(r" (?:--? |[|>&;#])|  ", match[1])[0].split() for match in found if match]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_are_there(page):
    wrong = []
    for words in command_lines(page):
        command, left = program, words
        while left and isinstance(command, click.Group):
            command, left = command.get_command(click.Context(command), left[0]), left[1:]
        known = {option for param in command.params for option in param.opts} if command else set()
        options = {word.partition("=")[0].strip(".,;:)`[]") for word in left if word[:2] == "--"}
        if command is None or options - known - {"--help"}:
            wrong.append(" ".join(words))
    assert wrong == []


def test_the_exit_statuses_are_documented():
    documented = set(map(int, re.findall(r"^\| (\d+) \|", CLI, re.MULTILINE)))
    ours = {value for value in vars(status).values() if isinstance(value, int)}
    assert documented == ours | {0, click.UsageError.exit_code}
