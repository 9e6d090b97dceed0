"""How the rows of a problem are shared out among the programs that run on a GPU at once.

Each program has neighbouring rows, so that it adds to few lines of a picture, and as much to do as
any other, where a causal mask gives the last rows most of the work.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from heedmap.kernels.spans import Hidden

MOST_BYTES = 1 << 30
"""What the sums of the single programs may take, where there is more than one for each matrix."""


class Sizes(NamedTuple):
    """How much there is to share out."""

    matrices: int
    rows: int
    keys: int


def groups_for(sizes: Sizes, programs: int, block: int) -> int:
    """Return into how many groups the rows of each matrix go.

    Enough for so many programs at once, as long as there are blocks of rows for them, and room.
    """
    wanted = -(-programs // sizes.matrices)
    room = MOST_BYTES // (4 * sizes.matrices * sizes.keys)
    return max(min(wanted, -(-sizes.rows // block), room), 1)


def share_out(
    hidden: Hidden, rows: int, block: int, groups: int, device: torch.device
) -> Int[Tensor, " groups_and_one"]:
    """Return where each group begins, and where the last one ends: always at a block.

    Some may be empty.
    """
    if hidden.first is None or hidden.last is None:
        work = torch.ones(rows, dtype=torch.float64, device=device)
    else:
        lengths = hidden.last.amax((0, 1)) - hidden.first.amin((0, 1)) + 1
        # A block of rows costs something even where its rows see nothing.
        work = lengths.clamp(min=1).double()
    ends = torch.arange(block, rows + block, block, device=device).clamp(max=rows)
    done = work.cumsum(0)[ends - 1]
    shares = torch.arange(1, groups, dtype=torch.float64, device=device) / groups * done[-1]
    cuts = ends[torch.searchsorted(done, shares)]
    edges = (torch.zeros_like(ends[:1]), cuts, ends[-1:])
    return torch.cat(edges).to(torch.int32)
