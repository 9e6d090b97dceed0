"""What the READMEs show runs, and the two of them show the same."""

import doctest
import re
from pathlib import Path

import pytest
import torch

from heedmap import AttentionMap, Causal, attention

ROOT = Path(__file__).parents[1]
NAMES = ("README.md", "README.zh.md")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def examples(name: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", text_of(name), re.DOTALL))


def questions(name: str) -> list[tuple[list[str], str]]:
    """Return the rows of the table of what a map can do: expressions, and what they give."""
    rows = re.findall(r"^\| (`weights.*) \| (.*) \|$", text_of(name), re.MULTILINE)
    return [(re.findall(r"`(.*?)`", asked), given) for asked, given in rows]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_run_as_shown(name: str) -> None:
    torch.manual_seed(0)
    test = doctest.DocTestParser().get_doctest(examples(name), {}, name, name, 0)
    assert len(test.examples) > 20
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize().failed == 0


def test_each_question_of_the_table_gets_what_it_says() -> None:
    query, key, value = torch.randn(3, 8, 1024, 64).unbind()
    _, weights = attention(query, key, value, mask=Causal())
    known = {"weights": weights, "torch": torch, "value": value}
    assert len(questions("README.md")) > 10
    for expressions, given in questions("README.md"):
        for expression in expressions:
            found = eval(expression, known)
            if given.startswith("a map:"):
                assert isinstance(found, AttentionMap), expression
            if given.startswith("a tensor:"):
                assert type(found) is torch.Tensor, expression


def test_both_languages_show_the_same() -> None:
    english, chinese = (re.sub(r" *#.*", "", examples(name)) for name in NAMES)
    assert english == chinese
    asked = [[expressions for expressions, _ in questions(name)] for name in NAMES]
    assert asked[0] == asked[1]
    outline = [re.findall(r"^(#+|\|)", text_of(name), re.MULTILINE) for name in NAMES]
    assert outline[0] == outline[1]
    numbers = [sorted(re.findall(r"\d[\d,.]*\d", text_of(name))) for name in NAMES]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md", "CHANGELOG.md"])
def test_what_is_linked_or_named_is_there(name: str) -> None:
    text = text_of(name)
    links = re.findall(r"\]\((?!https?:)(.*?)\)", text)
    named = re.findall(r"`((?:src|tests|scripts)/[\w./]+)`", text)
    paths = [path for path in [*links, *named] if "NAME" not in path]
    assert [path for path in paths if not (ROOT / path).exists()] == []
