"""What counts as saying the same again."""

import pytest
import torch

from heedmap import Axis
from heedmap.analysis.repeats import Repeats

from ..conftest import ForbidDense
from .conftest import tokens


def related(axis: Axis) -> set[tuple[int, int]]:
    tile = Repeats(axis).tile(range(len(axis)))
    return {(int(i), int(j)) for i, j in tile.nonzero() if i < j}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["Rose", "is", "rose"], {(0, 2)}),
        (["he", "the", "he"], {(0, 2)}),
        (["他说", "他", "说"], {(0, 1), (0, 2)}),
        (["，", "好", "，"], set()),
        (["<s>", "<s>", "x"], set()),
        (["7", "x", "7"], {(0, 2)}),
    ],
)
def test_repeats(words: list[str], expected: set[tuple[int, int]]) -> None:
    assert related(tokens(words)) == expected


def test_a_strip_is_a_part_of_the_whole() -> None:
    axis = tokens(["a", "b", "a", "c", "b", "a"])
    repeats = Repeats(axis)
    whole = repeats.tile(range(6))
    assert torch.equal(whole[2:5], repeats.tile(range(2, 5)))
    assert torch.equal(whole, whole.T)
    assert not whole.diagonal().any()
    assert repeats.has_repeat.tolist() == [True, True, True, False, True, True]


def test_words_that_all_differ_make_no_table_of_all_pairs(forbid_dense: ForbidDense) -> None:
    axis = tokens([f"w{i}" for i in range(1100)])
    with forbid_dense(1100 * 1100):
        assert not Repeats(axis).has_repeat.any()
