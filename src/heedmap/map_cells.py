"""From a map to its cells: all of them, under the budget, or the few that `repr` shows."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedmap import budget
from heedmap.lazy import Dense, sharded_in
from heedmap.lazy_algebra import Chosen
from heedmap.lazy_weights import leaves
from heedmap.places import blocks, spread
from heedmap.precision import exactly

if TYPE_CHECKING:
    from heedmap.attention_map import AttentionMap
    from heedmap.map_face import TensorFace


def is_free(held: "TensorFace") -> bool:
    """Return whether a map has no more cells than its rows or its columns, or is dense already."""
    _, rows, columns = held._rule.sizes
    return held._kept != (True, True) or min(rows, columns) <= 1 or isinstance(held._rule, Dense)


def require_room(held: "TensorFace", wish: str, max_bytes: int | None = None) -> None:
    """Refuse `wish` if a dense matrix like the map exceeds `max_bytes`, or the budget when None."""
    needed = math.prod(held.shape) * held.element_size()
    if isinstance(held._rule, Chosen) or not is_free(held):
        budget.require(needed, tuple(held.shape), wish, max_bytes)


def densify(held: "TensorFace", wish: str, max_bytes: int | None = None) -> Tensor:
    """Return a map as an ordinary tensor of its own, for `wish`, under the budget.

    Raises:
        BudgetError: if it would take more than `max_bytes`, or than the budget when None.
    """
    require_room(held, wish, max_bytes)
    with exactly():
        return _all_cells(held)


def _all_cells(held: "TensorFace") -> Tensor:
    rule = held._rule
    if torch.is_grad_enabled() and rule.requires_grad():
        whole = rule.tile(*(range(size) for size in rule.sizes)).to(held.dtype)
    else:
        whole = torch.empty(rule.sizes, dtype=held.dtype, device=held.device)
        with torch.no_grad():
            for block in blocks(*rule.sizes):
                whole[tuple(spread(numbers) for numbers in block)] = rule.tile(*block)
    # A cut of a given matrix is a view of it, and what is returned may be written into.
    return (whole.clone() if whole.requires_grad else whole).reshape(held.shape)


def describe(held: "AttentionMap") -> str:
    """Return what `repr` shows of a large map; computes its corners, where all of it is here."""
    shared = sharded_in(held._rule)
    parts = leaves(held._rule)
    masks = sorted({str(leaf.problem.mask) for leaf in parts if leaf.problem.mask is not None})
    dense = budget.in_words(math.prod(held.shape) * held.element_size())
    words = [f"shape={list(held.shape)}", f"dtype={str(held.dtype).removeprefix('torch.')}"]
    words += [f"mask={', '.join(masks)}"] if masks else []
    words += [f"backend={held.backend}", f"dense would take {dense}"]
    if shared is not None:
        return f"AttentionMap({', '.join([*words, *shared.described()])})"
    rows, columns = (
        torch.tensor(sorted({*range(min(3, size)), *range(max(size - 3, 0), size)}))
        for size in held._rule.sizes[1:]
    )
    if not held._rule.sizes[0]:
        return f"AttentionMap({', '.join(words)})"
    with torch.no_grad():
        corner = held._rule.tile(range(1), rows.to(held.device), columns.to(held.device))[0]
    lines = [f"AttentionMap({', '.join(words)}", " corners of the first matrix:"]
    for number, line in enumerate(corner.tolist()):
        cells = [f"{cell:.3g}" for cell in line]
        if held._rule.sizes[2] > len(cells):
            cells.insert(3, "…")
        lines.append("  " + "  ".join(f"{cell:>9}" for cell in cells))
        if number == 2 and held._rule.sizes[1] > len(rows):
            lines.append("  " + f"{'…':>9}")
    return "\n".join(lines) + ")"
