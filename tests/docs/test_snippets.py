"""Every Python block of the documentation runs, and gives what it shows; `...` stands for anything.

The blocks of a page run in order in one namespace, in an empty folder. Where a block has prompts,
what it shows is compared; else it only has to run. A page that fetches packages says so in a
comment at its beginning: <!-- snippets: slow -->.
"""

import doctest
import re
from pathlib import Path
from typing import Any

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
SLOW = "<!-- snippets: slow -->"


def pages() -> list[Any]:
    """Return each page with Python in it, as a parameter named after it."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    return [
        pytest.param(
            text,
            id=path.relative_to(DOCS).as_posix(),
            marks=[pytest.mark.slow] if SLOW in text else [],
        )
        for path, text in texts.items()
        if BLOCK.search(text) and "_build" not in path.parts
    ]


def run(text: str, name: str) -> list[str]:
    """Run the blocks of a page; return what went otherwise than it says."""
    known: dict[str, Any] = {"__name__": "__main__"}
    wrong: list[str] = []
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(2))
        indent, code = block.groups()
        code = re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
        if ">>>" not in code:
            exec(compile("\n" * line + code, name, "exec"), known)
            continue
        test = doctest.DocTestParser().get_doctest(code, known, name, name, line)
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        runner.run(test, clear_globs=False, out=wrong.append)
        known = test.globs
    return wrong


@pytest.mark.parametrize("text", pages())
def test_the_snippets_of_a_page_run_as_shown(
    text: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    wrong = run(text, request.node.callspec.id)
    assert not wrong, "".join(wrong)


def test_what_a_block_shows_is_compared() -> None:
    page = "```python\n>>> 1 + 1\n2\n```\n\n    words\n\n```python\n>>> 1 + 1\n3\n```\n"
    (wrong,) = run(page, "page")
    assert "line 9" in wrong
    assert "Expected:\n    3\nGot:\n    2" in wrong


def test_blocks_of_a_page_know_those_before_them() -> None:
    assert run("```python\na = 1\n```\n\n```python\n>>> a\n1\n\n```\n", "page") == []


def test_there_are_pages() -> None:
    assert len(pages()) > 10
