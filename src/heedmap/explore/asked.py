"""What clients write, read strictly: numbers, stretches, lists of tiles."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

MAX_TILES = 256
MAX_BINS = 8192
MAX_STRONGEST = 1024

TilePlace = tuple[int, int, str, int, int, int]


class Malformed(Exception):
    """A request that says nothing that could exist."""


def number_of(text: str, name: str, most: int | None = None) -> int:
    """Return a whole number from 0.

    Raises:
        Malformed: for anything else, and for more than `most`.

    Example:
        >>> number_of("12", "layer")
        12
        >>> number_of("-1", "layer")
        Traceback (most recent call last):
        heedmap.explore.asked.Malformed: layer must be a whole number from 0; got '-1'.
    """
    if not re.fullmatch("[0-9]{1,15}", text):
        raise Malformed(f"{name} must be a whole number from 0; got {text[:40]!r}.")
    if most is not None and int(text) > most:
        raise Malformed(f"{name} must be at most {most}; got {text}.")
    return int(text)


def numbers_of(texts: Mapping[str, str], *names: str) -> list[int]:
    """Return the numbers of these names."""
    return [number_of(texts[name], name) for name in names]


def only(values: Sequence[str], name: str) -> str:
    """Return the value of a name that must stand once behind the question mark.

    >>> only(["3"], "bins")
    '3'
    """
    if len(values) != 1:
        raise Malformed(f"{name} must be given once; got it {len(values)} times.")
    return values[0]


def stretch_of(text: str, name: str) -> range:
    """Return the positions from a first one to before another.

    >>> stretch_of("3:9", "rows")
    range(3, 9)
    """
    first, colon, stop = text.partition(":")
    if not colon:
        raise Malformed(f"{name} must be first:stop; got {text[:40]!r}.")
    return range(number_of(first, name), number_of(stop, name))


def tiles_of(body: bytes) -> list[TilePlace]:
    """Return the tiles that a body asks for.

    >>> tiles_of(b'{"tiles": [[0, 1, "mean", 2, 0, 3]]}')
    [(0, 1, 'mean', 2, 0, 3)]
    """
    try:
        asked: Any = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Malformed("the body must be JSON; it is not.") from None
    places = asked.get("tiles") if isinstance(asked, dict) else None
    if not isinstance(places, list):
        raise Malformed('the body must be {"tiles": [...]}; it is something else.')
    if len(places) > MAX_TILES:
        raise Malformed(f"tiles must be at most {MAX_TILES}; got {len(places)}.")
    return [_place_of(place) for place in places]


def _place_of(place: Any) -> TilePlace:
    if isinstance(place, list) and len(place) == 6:
        layer, head, statistic, zoom, x, y = place
        numbers = layer, head, zoom, x, y
        # A bool is an int to Python.
        if isinstance(statistic, str) and all(
            type(number) is int and 0 <= number < 10**15 for number in numbers
        ):
            return layer, head, statistic, zoom, x, y
    raise Malformed(
        "a tile must be [layer, head, statistic, zoom, x, y], whole numbers from 0 and the name "
        "of a statistic; got something else."
    )
