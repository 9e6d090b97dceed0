"""The command line for tests, and a line on each trap where the traps alone were run."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from .command import Run, runner
from .traps import OUTSIDE, TITLES

HERE = Path(__file__).parent
_NAME = re.compile(r"::test_([hum]\d\d)_")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the command line, run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a line for each trap: its number, what became of its tests, what it is."""
    asked = [Path(str(argument).split("::")[0]).resolve() for argument in config.args]
    if any(HERE not in (path, *path.parents) for path in asked):
        return
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for outcome in ("failed", "error", "skipped", "passed"):
        for report in terminalreporter.stats.get(outcome, []):
            if match := _NAME.search(getattr(report, "nodeid", "")):
                found[match[1].upper()][outcome] += 1
    terminalreporter.section("traps")
    told = 0
    for number, title in TITLES.items():
        counts = ", ".join(f"{count} {outcome}" for outcome, count in found[number].items())
        if number in OUTSIDE:
            counts = f"outside: {OUTSIDE[number]}"
        if counts:
            told += 1
            terminalreporter.write_line(f"{number}  {counts:10}  {title}")
    terminalreporter.write_line(f"{told} of {len(TITLES)} traps")
