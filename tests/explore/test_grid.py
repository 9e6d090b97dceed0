"""Which cells a tile shows."""

import pytest

from heedmap.errors import ArgumentError
from heedmap.explore.grid import TILE, place_of, require_number, thumbnail_place, zooms_of
from tests.explore.dense import tiles_at

SIZES = [(0, 0), (1, 1), (2, 3), (256, 256), (257, 1), (3, 1000), (100_000, 100_000)]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_deepest_level_is_the_smallest_that_holds_the_longer_side(sizes: tuple[int, int]):
    zooms = zooms_of(*sizes)
    assert TILE * 2**zooms >= max(sizes)
    assert zooms == 0 or TILE * 2 ** (zooms - 1) < max(sizes)


@pytest.mark.parametrize("sizes", SIZES[:-1])
def test_the_tiles_of_a_level_cover_each_cell_once(sizes: tuple[int, int]):
    for zoom in range(zooms_of(*sizes) + 1):
        places = [place_of(*sizes, zoom, x, y) for x, y in tiles_at(*sizes, zoom)]
        cells = [(r, c) for place in places for r in place.rows for c in place.columns]
        assert len(cells) == len(set(cells)) == sizes[0] * sizes[1]
        for place in places:
            assert max(place.size) <= TILE


def test_zoom_0_is_the_whole_matrix():
    place = place_of(100_000, 70_000, 0, 0, 0)
    assert (len(place.rows), len(place.columns), place.side) == (100_000, 70_000, 512)
    assert place.size == (196, 137)


@pytest.mark.parametrize("sizes", SIZES)
def test_a_thumbnail_has_at_most_32_pixels_a_side(sizes: tuple[int, int]):
    place = thumbnail_place(*sizes)
    assert (len(place.rows), len(place.columns)) == sizes
    assert max(place.size) <= 32
    assert max(place.size) > 16 or max(sizes) <= 128


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ((3, 0, 0), "zoom must be 0 to 2; got 3."),
        ((-1, 0, 0), "zoom must be 0 to 2; got -1."),
        ((2, 2, 0), "x must be 0 to 1; got 2."),
        ((2, 0, 4), "y must be 0 to 3; got 4."),
        ((2, 0, -1), "y must be 0 to 3; got -1."),
    ],
)
def test_a_tile_that_no_level_has_is_refused(address: tuple[int, int, int], message: str):
    with pytest.raises(ArgumentError, match=message):
        place_of(1000, 512, *address)


def test_a_number_of_nothing_is_refused():
    with pytest.raises(ArgumentError, match=r"query must be a number, and there is none; got 0\."):
        require_number("query", 0, 0)
