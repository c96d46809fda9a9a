"""Each check of the conformance suite as a test: `pytest -p pjrt_hub.kit.pytest_plugin`.

The option `--pjrt-plugin PLUGIN` names the plugin; the checks run in the suite's workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pjrt_hub.kit.conformance.check import Check
    from pjrt_hub.kit.conformance.suite import Suite
    from pjrt_hub.kit.conformance.verdict import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("pjrt-hub", "conformance of a PJRT plugin")
    group.addoption(
        "--pjrt-plugin", metavar="PLUGIN", help="check this plugin: a name, or a library's path"
    )
    for name, metavar, what in (
        ("area", "AREA", "only the checks of this area"),
        ("check", "CHECK", "only this check"),
        ("option", "NAME=VALUE", "a create option of the plugin's clients"),
    ):
        group.addoption(
            f"--pjrt-{name}",
            metavar=metavar,
            action="append",
            default=[],
            help=f"{what}; repeatable",
        )


@pytest.hookimpl(tryfirst=True)  # The checks must be there before -k and -m choose items.
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the checks to the tests."""
    plugin = session.config.getoption("--pjrt-plugin")
    if plugin is None:
        return
    from pjrt_hub.errors import PjrtHubError
    from pjrt_hub.kit.conformance import named_values
    from pjrt_hub.kit.conformance.check import select
    from pjrt_hub.kit.conformance.suite import Suite

    options = session.config.getoption
    try:
        wanted = select(options("--pjrt-area"), options("--pjrt-check"))
        suite = Suite(plugin, options=named_values.read(options("--pjrt-option")))
    except (PjrtHubError, ValueError, TypeError) as exc:
        raise pytest.UsageError(f"--pjrt-plugin: {exc}") from exc
    name = suite.identity.name
    conformance = Conformance.from_parent(session, name=name, nodeid=name, suite=suite)
    items += [ConformanceTest.from_parent(conformance, check=check) for check in wanted]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Learn which checks were chosen in the end."""
    for item in session.items:
        if isinstance(item, ConformanceTest):
            item.conformance.chosen.append(item.check)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the workers, if the session ended before the checks did."""
    for item in session.items:
        if isinstance(item, ConformanceTest):
            item.conformance.end()


class Conformance(pytest.Collector):
    """The checks of one plugin, which are made in an order of their own."""

    def __init__(self, *, suite: Suite, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.suite = suite
        self.chosen: list[Check] = []
        self._results: Iterator[Result] | None = None
        self._found: dict[str, Result] = {}

    def collect(self) -> list[pytest.Item]:
        """Collect nothing: the tests are added from outside."""
        return []

    def result(self, check: Check) -> Result:
        """Wait for the result of a check; keep the results of others that come first."""
        if self._results is None:
            self._results = self.suite.results(self.chosen)
        while check.name not in self._found:
            found = next(self._results)
            self._found[found.name] = found
        return self._found[check.name]

    def end(self) -> None:
        """Make no more checks."""
        if self._results is not None:
            self._results.close()  # type: ignore[attr-defined]  # it is a generator


class ConformanceTest(pytest.Item):
    """A check as a test: a defect fails the test, the verdicts unsupported and skip skip it."""

    def __init__(self, *, check: Check, **kwargs: Any) -> None:
        super().__init__(name=check.name, **kwargs)
        self.check = check

    @property
    def conformance(self) -> Conformance:
        """The collector of all checks of this plugin."""
        assert isinstance(self.parent, Conformance)
        return self.parent

    def runtest(self) -> None:
        """Make the check."""
        result = self.conformance.result(self.check)
        if result.notes:
            self.add_report_section("call", "notes", "\n".join(result.notes))
        if result.verdict.is_defect:
            raise Defect(result)
        if result.verdict != "pass":
            pytest.skip(f"{result.verdict}: {result.text}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show a defect as the command line does, without a traceback of pjrt-hub."""
        if isinstance(excinfo.value, Defect):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the place of the check in pytest's output."""
        return Path(self.conformance.name), None, self.name


class Defect(Exception):
    """A defect of the plugin, which a check found."""

    def __init__(self, result: Result) -> None:
        from pjrt_hub.kit.conformance import table

        super().__init__(table.defect(result, num_words=40))
