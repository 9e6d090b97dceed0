"""The numbers that the page begins with are those of PyTorch."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from heedmap.lesson.numbers import start_numbers
from heedmap.lesson.page_files import PAGE


def test_the_file_of_the_page_holds_the_numbers_as_they_are_now() -> None:
    kept = json.loads(Path(PAGE / "start_numbers.json").read_text())
    # Not a digit may differ: they are float32, written in full.
    assert kept == json.loads(json.dumps(start_numbers()))


def test_they_are_those_of_the_plain_lesson() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        sounds = torch.randn(2, 5, 4)
        projections = [nn.Linear(4, 8, bias=False) for _ in range(3)]
    numbers = start_numbers()
    assert torch.equal(torch.tensor(numbers["sounds"]), sounds)
    for name, projection in zip(("w_q", "w_k", "w_v"), projections, strict=True):
        assert torch.equal(torch.tensor(numbers[name]), projection.weight.T)


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_two_scores_that_the_text_names(language: str) -> None:
    numbers = {name: torch.tensor(given) for name, given in start_numbers().items() if "w_" in name}
    x = torch.tensor(start_numbers()["sounds"][0])
    scores = (x @ numbers["w_q"]) @ (x @ numbers["w_k"]).T
    named = [f"{scores[row, column]:.2f}" for row, column in ((0, 1), (1, 0))]
    text = (PAGE / f"lesson_texts_{language}.js").read_text(encoding="utf-8")
    [says] = re.findall(r"step_3_says:\s*\"(.+)\"", text)
    assert re.findall(r"\d\.\d\d", says) == named
    same = (x @ numbers["w_q"]) @ (x @ numbers["w_q"]).T
    torch.testing.assert_close(same, same.T)


def test_making_them_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    start_numbers()
    assert torch.equal(torch.rand(3), wanted)
