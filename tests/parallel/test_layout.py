"""Which positions lie on which rank."""

import pytest
import torch

from heedmap.errors import ArgumentError, ShapeError
from heedmap.parallel import Layout

LAYOUTS = [
    Layout.even(11, 3),
    Layout.zigzag(11, 3),
    Layout.zigzag(3, 4),
    Layout.of_lengths([0, 4, 0, 7]),
    Layout.even(0, 2),
    Layout(((range(7, 11), range(2)), (), (range(2, 7),))),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_make_the_whole(layout: Layout) -> None:
    whole = torch.randn(2, layout.size, 3)
    parts = [layout.shard(whole, rank, dim=1) for rank in range(layout.ranks)]
    assert torch.equal(layout.whole(parts, dim=1), whole)
    assert torch.equal(layout.whole([part.mT for part in parts], dim=-1), whole.mT)
    for rank, part in enumerate(parts):
        numbers = layout.positions(rank)
        assert torch.equal(part, whole[:, numbers])
        owners, places = layout.owners(numbers)
        assert bool((owners == rank).all())
        assert torch.equal(places, torch.arange(layout.lengths[rank]))


def test_sizes() -> None:
    assert Layout.even(7, 3).lengths == (3, 2, 2)
    assert Layout.zigzag(8, 2) == Layout(((range(2), range(6, 8)), (range(2, 4), range(4, 6))))
    assert Layout.zigzag(12, 3).lengths == (4, 4, 4)
    assert sum(Layout.zigzag(13, 3).lengths) == 13


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ((), "spans must be those of at least one rank"),
        (((range(3),), (range(4, 5),)), "spans must hold every position once"),
        (((range(3),), (range(2, 5),)), "spans must hold every position once"),
        (((range(0, 6, 2),),), "spans must hold every position once"),
        ([range(5), range(5, 10)], "spans must be a sequence of ranges for each rank; got range"),
        ([[(0, 5)]], "spans must be a sequence of ranges for each rank; got "),
    ],
)
def test_positions_must_be_there_once(spans: tuple[tuple[range, ...], ...], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Layout(spans)


@pytest.mark.bad_input
def test_sizes_that_make_no_layout() -> None:
    with pytest.raises(ArgumentError, match="lengths must be 0 or more each; got"):
        Layout.of_lengths([3, -1])
    with pytest.raises(ArgumentError, match="positions must be 0 or more, and ranks 1 or more"):
        Layout.even(3, 0)
    layout = Layout.even(5, 2)
    with pytest.raises(ShapeError, match="whole must have the 5 positions of the layout"):
        layout.shard(torch.zeros(4), 0, dim=0)
    with pytest.raises(ShapeError, match="parts must have the lengths of the layout"):
        layout.whole([torch.zeros(3), torch.zeros(3)], dim=0)


@pytest.mark.bad_input
@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_there_is_not(rank: int) -> None:
    layout = Layout.even(8, 2)
    for asked in (
        lambda: layout.shard(torch.arange(8), rank, dim=0),
        lambda: layout.positions(rank),
        lambda: list(layout.pieces(rank)),
    ):
        with pytest.raises(ArgumentError, match=f"rank must be 0 to 1 in this layout; got {rank}"):
            asked()


@pytest.mark.bad_input
@pytest.mark.parametrize("dim", [1, -2])
def test_a_dimension_that_there_is_not(dim: int) -> None:
    with pytest.raises(ShapeError, match=f"whole must have dimension {dim}; got one of"):
        Layout.even(8, 2).shard(torch.arange(8), 0, dim)
