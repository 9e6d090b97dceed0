"""The numbers that the page begins with are those of PyTorch."""

import json
from pathlib import Path

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


def test_making_them_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    start_numbers()
    assert torch.equal(torch.rand(3), wanted)
