"""Every message that heedmap can raise stands in docs/errors.md, and a test has met it.

The page is compared with what the sources give. That a test meets a message is read out of the
tests' own sources, so that it holds however few of them are run: one of their strings (mostly a
``match=``, or the words that a table of wrong inputs expects) must quote three or more of the
message's words in a row that are always the same and that no other message has. So a message that
is reworded, and a new one, has to be met anew, and a test that meets one message does not stand for
another. Where other messages have all its words too (“… must be a torch.Tensor; got …”), it is its
longest stretch of them that a test must quote; and nothing where that is shorter than three
(“… must be …”).
"""

import ast
from functools import cache
from pathlib import Path

import pytest

from .errors_catalogue import PAGE, Message, messages, page, words_of

TESTS = Path(__file__).parent
RUNS = range(3, 8)
"""How many words a quotation has that tells one message from others."""


@cache
def quoted() -> set[tuple[str, ...]]:
    """Return every run of words in a string of a test, docstrings aside."""
    found: set[tuple[str, ...]] = set()
    for path in TESTS.rglob("*.py"):
        if "errors_catalogue" in path.name:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        said = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) in said:
                    continue
                for stretch in node.value.replace(".+", ".*").split(".*"):
                    found |= runs(words_of(stretch))
    return found


def runs(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + n]) for n in RUNS for at in range(len(words) - n + 1)}


@cache
def runs_of(message: Message) -> set[tuple[str, ...]]:
    return {run for stretch in message.said for run in runs(stretch)}


def telling(message: Message) -> set[tuple[str, ...]]:
    """Return the runs of words of which a test must quote one."""
    others = (runs_of(other) for other in messages_once() if other.text != message.text)
    own = runs_of(message).difference(*others)
    return own or {tuple(max(message.said, key=len)[: RUNS[-1]])}


@cache
def messages_once() -> tuple[Message, ...]:
    return tuple(messages())


def test_the_page_is_that_of_the_sources() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tests.errors_catalogue > docs/errors.md"


@pytest.mark.parametrize("message", messages(), ids=lambda message: message.text)
def test_a_test_meets_it(message: Message) -> None:
    words = telling(message)
    if len(max(words)) in RUNS and words.isdisjoint(quoted()):
        pytest.fail(f"no test expects it; {message.module} raises it: {message.text}")
