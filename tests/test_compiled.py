"""Whether numbers are finite and not huge, as the compiled library and PyTorch see it."""

import math

import pytest
import torch

from heedmap import compiled

needs_library = pytest.mark.skipif(
    compiled.load() is None, reason="no kernel was compiled on this machine, or none is wanted"
)


@needs_library
@pytest.mark.parametrize("count", [0, 1, 7, 8, 16, 33, 1000])
@pytest.mark.parametrize("spoiler", [None, math.nan, math.inf, -math.inf, 1e18, -3e38])
def test_one_number_anywhere_decides(count: int, spoiler: float | None) -> None:
    good = torch.randn(5, 3)
    for place in range(0, count, 5):
        given = torch.randn(count)
        if spoiler is not None:
            given[place] = spoiler
        assert compiled.are_tame([good, given]) is (spoiler is None)
        assert compiled.are_tame([given, good, good]) is (spoiler is None)


@needs_library
def test_many_of_a_size_that_is_still_tame() -> None:
    assert compiled.are_tame([torch.full((100,), 9e16)]) is True
    assert compiled.are_tame([torch.full((200,), 9e16)]) is False


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(3, dtype=torch.float64),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(4, 4).T[:2],
        torch.ones(compiled.FEW_NUMBERS + 1),
        torch.empty(3, device="meta"),
    ],
    ids=["float64", "bfloat16", "with gaps", "many", "meta"],
)
def test_the_rest_is_left_to_pytorch(other: torch.Tensor) -> None:
    assert compiled.are_tame([torch.ones(3), other]) is None
