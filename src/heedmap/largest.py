"""The largest cells of each row of a tile."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Int, Shaped
from torch import Tensor

GROUP = 32
"""How many neighbouring cells are first compared as one in a search for the largest."""

WIDE = 512
"""From how many columns for each cell sought the search by groups is the faster one."""

APART = 64
"""How many groups there are then at least for each cell sought: fewer make torch's topk slow."""


def top_of_tile(
    tile: Shaped[Tensor, "matrices rows columns"], count: int, largest: bool = True
) -> tuple[Shaped[Tensor, "matrices rows count"], Int[Tensor, "matrices rows count"]]:
    """Return the largest cells of each row of a tile; equal ones in the order of their columns.

    The `count` largest cells lie in the `count` groups of neighbours whose largest cells are
    largest, so only those are searched. Where an equal cell may have been passed over, the whole
    row is sorted instead.
    """
    tile = tile.byte() if tile.dtype == torch.bool else tile
    signed = tile if largest else -tile
    if count == 1:
        value, place = _first_largest(signed)
        return (value if largest else -value), place
    search = _top_directly if tile.shape[-1] < WIDE * count else _top_by_groups
    value, place, passed_over = search(signed, count)
    value, place = _order_equals(value, place)
    if bool(passed_over.any()):
        value[passed_over], place[passed_over] = _sorted_top(signed[passed_over], count)
    return (value if largest else -value), place


def _first_largest(tile: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest cell of each row, the first of equals, as torch's max promises."""
    if tile.shape[-1] % GROUP:
        return tile.max(-1, keepdim=True)
    groups = tile.unflatten(-1, (-1, GROUP))
    chosen = groups.amax(-1).argmax(-1, keepdim=True)
    value, place = groups.gather(-2, chosen[..., None].expand(*chosen.shape, GROUP)).max(-1)
    return value, chosen * GROUP + place


def _top_directly(tile: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest cells, their columns, and for which rows an equal one may be missed."""
    value, place = tile.topk(min(count + 1, tile.shape[-1]), dim=-1)
    return value[..., :count], place[..., :count], _ends_in_equals(value, count)


def _top_by_groups(tile: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same, by way of the largest cell of each group.

    The cells of a group lie far apart, so that groups are compared by whole lines.
    """
    groups = APART * count * max(math.isqrt(tile.shape[-1] // (8 * APART * count)), 1)
    deep = -(-tile.shape[-1] // groups)
    short = groups * deep - tile.shape[-1]
    tile = F.pad(tile, (0, short), value=-torch.inf) if short else tile
    heads = tile.unflatten(-1, (deep, groups)).amax(-2)
    chosen = heads.topk(count, dim=-1, sorted=False).indices
    steps = torch.arange(0, groups * deep, groups, device=tile.device)
    columns = (chosen[..., None] + steps).flatten(-2)
    value, order = tile.gather(-1, columns).topk(count + 1, dim=-1)
    # A group that was not chosen holds an equal cell only if its largest is as large.
    others = torch.count_nonzero(heads >= value[..., count - 1 : count], dim=-1) > count
    passed_over = _ends_in_equals(value, count) | others
    return value[..., :count], columns.gather(-1, order[..., :count]), passed_over


def _ends_in_equals(value: Tensor, count: int) -> Tensor:
    """Return for which rows the first cell that was left out equals the last that was taken."""
    if value.shape[-1] <= count or not count:
        return torch.zeros(value.shape[:-1], dtype=torch.bool, device=value.device)
    return value[..., count] == value[..., count - 1]


def _order_equals(value: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    if value.shape[-1] == 1:
        return value, place
    place, order = place.sort(dim=-1)
    value, again = value.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    return value, place.gather(-1, again)


def _sorted_top(tile: Tensor, count: int) -> tuple[Tensor, Tensor]:
    value, place = tile.sort(dim=-1, descending=True, stable=True)
    return value[..., :count], place[..., :count]
