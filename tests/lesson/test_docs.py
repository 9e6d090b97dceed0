"""The figures that the site tells of the lesson are those that the page shows."""

import json
import re
from pathlib import Path

import pytest

from heedmap.lesson.page_files import PAGE

DOCS = Path(__file__).parents[2] / "docs"
TABLES = (("recall", 1), ("reach", 1), ("reading", 1), ("sharpness_by_width", 1), ("loss", 4))
"""The tables in their order, and how many columns of the results each of theirs goes on."""


@pytest.mark.parametrize("page", ["lesson.md", "zh/lesson.md"])
def test_tables_hold_what_was_measured(page: str) -> None:
    results = json.loads((PAGE / "measured.json").read_text())["results"]
    tables = re.findall(r"(?:^\|.*\n?)+", (DOCS / page).read_text(encoding="utf-8"), re.M)
    assert len(tables) == len(TABLES)
    for table, (name, step) in zip(tables, TABLES, strict=True):
        head, _, *rows = [line.strip("|").split(" | ") for line in table.strip().splitlines()]
        result = results[name]
        assert [float(x) for x in head[1:]] == [float(x) for x in result["x"][::step]]
        for row, line in zip(rows, result["series"].values(), strict=True):
            means = [float(cell.split(" ± ")[0]) for cell in row[1:]]
            # Two digits of it, at least.
            assert means == pytest.approx(line["mean"][::step], rel=0.06)


@pytest.mark.parametrize("page", ["lesson.md", "zh/lesson.md"])
def test_pictures_are_there(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    pictures = re.findall(r"\]\(((?:\.\./)?lesson-\w+\.png)\)", text)
    assert len(pictures) == 4
    assert all(((DOCS / page).parent / picture).is_file() for picture in pictures)
