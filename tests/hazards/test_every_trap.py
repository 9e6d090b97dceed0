"""Each trap has a test that bears its number, or a reason why it cannot."""

import re
from pathlib import Path

from .traps import OUTSIDE, TITLES

HERE = Path(__file__).parent


def test_each_has_a_test_or_a_reason() -> None:
    sources = [path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py")]
    tested = {
        number.upper()
        for source in sources
        for number in re.findall(r"^\s*def test_([hum]\d\d)_\w+\(", source, re.MULTILINE)
    }
    assert tested | set(OUTSIDE) == set(TITLES)
    assert not tested & set(OUTSIDE)
    assert all(len(reason.split()) > 5 for reason in OUTSIDE.values())


def test_none_is_skipped() -> None:
    # Words that the other files here must not contain; nothing is skipped by naming them.
    forbidden = ("mark.skip", "pytest.skip", "xfail", "importorskip")
    for path in HERE.glob("test_*.py"):
        if path.name != Path(__file__).name:
            source = path.read_text(encoding="utf-8")
            assert not [word for word in forbidden if word in source], path.name
