"""The Chinese pages show what the English ones show."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["index.md", "concepts.md", "what-weights-say.md"]
PAGES += (f"howto/{path.name}" for path in sorted((DOCS / "howto").glob("*.md")))


def examples(path: Path) -> str:
    """Return the blocks of code of a page without their comments."""
    blocks = re.findall(
        r"^```(?:python|console)\n.*?^```$", text_of(path), re.DOTALL | re.MULTILINE
    )
    return re.sub(r" +# .*", "", "\n".join(blocks))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_run_the_same(page: str) -> None:
    assert examples(DOCS / "zh" / page) == examples(DOCS / page)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "index.md"])
def test_both_languages_have_the_same_outline(page: str) -> None:
    english, chinese = (
        re.findall(r"^(#+(?= )|\||- |```)", text_of(folder / page), re.MULTILINE)
        for folder in (DOCS, DOCS / "zh")
    )
    assert chinese == english


def test_no_chinese_page_stands_alone() -> None:
    known = {path.relative_to(DOCS / "zh").as_posix() for path in (DOCS / "zh").rglob("*.md")}
    assert set(PAGES) <= known
