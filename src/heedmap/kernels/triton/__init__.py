"""Statistics of weights on a GPU, by kernels in Triton, where that is installed.

Given the log-normaliser, one pass gives any of what `native` gives on a CPU: what keys receive,
entropies, the strongest keys, pictures. The softmax is computed in float32 whatever the inputs.
Half precision is multiplied as it is, since each product is exact in float32, and so are the sums;
float32 is multiplied in float32, or, where ``HEEDMAP_PRODUCTS=bfloat16`` says so, in bfloat16.

Triton is not imported before it is needed.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from heedmap.kernels.spans import Hidden, hidden_of, is_simple
from heedmap.kernels.statistics import Found, Wanted
from heedmap.kernels.triton import gather, library, trial
from heedmap.kernels.triton.shares import Sizes, groups_for, share_out
from heedmap.problem import Problem

MOST_TOP = 256
"""How many of the strongest keys of a row are found at most; beyond, they do not fit in registers.
"""

HELD_CELLS = 4096
"""How many strongest keys a program holds at a time; for many of them it takes fewer rows."""


class Tile(NamedTuple):
    """How large the blocks are that a program computes, so that they fit in its registers.

    Attributes:
        lines: How many rows.
        columns: How many keys.
        part: How much of a vector is multiplied at once.
        warps: How many groups of 32 threads share the work.
    """

    lines: int
    columns: int
    part: int
    warps: int


HALF, SINGLE = Tile(64, 64, 128, 4), Tile(32, 32, 16, 4)
"""For half precision, which tensor cores multiply, and for float32, which takes registers."""

PROGRAMS_EACH = 4
"""How many programs there are for each of a GPU's processors, so that none waits for the last."""

INTERPRETED_PROGRAMS = 6


def serves(problem: Problem, top: int) -> bool:
    """Return whether the kernel gives statistics of this problem, and Triton is there.

    It knows no soft-cap, no function of scores, and no float64; of masks those that `native` knows.
    Without a GPU it serves only under Triton's interpreter.

    Cost: where inputs of this kind are new on a GPU, some seconds, to compile and try it.
    """
    scoring, query = problem.scoring, problem.query
    if not (query.is_cuda or library.is_interpreted()) or not library.is_there():
        return False
    if problem.compute_dtype != torch.float32 or top > MOST_TOP:
        return False
    if forward_ad._current_level >= 0 or is_functorch_wrapped_tensor(query):
        return False
    if any(type(tensor) not in (Tensor, Parameter) for tensor in problem.tensors()):
        return False
    if scoring.soft_cap is not None or scoring.change is not None or not problem.clean:
        return False
    if scoring.bias is not None and scoring.bias.dtype == torch.float64:
        return False
    if not (query.numel() and problem.key.numel() and is_simple(problem)):
        return False
    kind = query.device, query.dtype, query.shape[-1]
    return not query.is_cuda or trial.is_right(statistics, *kind)


def statistics(
    problem: Problem,
    log_normalizer: Float[Tensor, "matrices rows"],
    wanted: Wanted,
    *,
    matrices: range | None = None,
    rows: range | None = None,
    products: str | None = None,
) -> Found:
    """Return statistics of the weights of some rows, in one pass.

    Args:
        problem: One that the kernel serves.
        log_normalizer: Of these rows of these matrices.
        wanted: What to gather; `bins` say of these rows where they fall.
        matrices: Which ones of batch × heads; None for all.
        rows: Which queries; what keys receive, they receive from these alone. None for all.
        products: ``"float32"``, or ``"bfloat16"`` to round inputs of float32 before they are
            multiplied; None for what ``HEEDMAP_PRODUCTS`` says.

    Cost: O(visible pairs) time; memory of the answers, and of `received` and the picture once for
    each program, up to a GiB. Query and key are copied only to be rounded.
    """
    batch, heads, queries, keys = problem.extent
    matrices = range(batch * heads) if matrices is None else matrices
    rows = range(queries) if rows is None else rows
    products = library.products() if products is None else products
    query, key = problem.query.detach(), problem.key.detach()
    if query.dtype == torch.float32 and products == "bfloat16":
        query, key = query.bfloat16(), key.bfloat16()
    tile, held = tile_for(query.dtype, wanted.top), _power_of_two(max(wanted.top, 1))
    sizes = Sizes(len(matrices), len(rows), keys)
    groups = groups_for(sizes, _programs(query.device), tile.lines)
    hidden = hidden_of(problem, rows)
    cuts = share_out(hidden, len(rows), tile.lines, groups, query.device)
    room = _Room(wanted, sizes, groups, cuts, query.device)
    with _on(query.device):
        gather.make()[(len(matrices), groups)](
            query[:, :, rows.start :],
            *query.stride(),
            key,
            *key.stride(),
            *_bias_of(problem, rows),
            *_hidden_parts(hidden),
            _starts(log_normalizer),
            cuts,
            *room.bins,
            room.received,
            room.entropy,
            room.strongest,
            room.sums,
            room.maxima,
            matrices.start,
            heads,
            heads // key.shape[1],
            len(rows),
            keys,
            problem.scoring.scale,
            room.window,
            *room.picture,
            WIDTH=query.shape[-1],
            TOP=wanted.top,
            HELD=held,
            # NumPy, which interprets, knows no products of bfloat16. The same numbers in float32
            # have the same products.
            WIDEN=library.is_interpreted(),
            LINES=tile.lines,
            COLUMNS=tile.columns,
            PART=max(min(_power_of_two(query.shape[-1]), tile.part), 16),
            num_warps=tile.warps,
        )
    return room.found()


def tile_for(dtype: torch.dtype, top: int) -> Tile:
    """Return how large blocks are for a number type and so many of the strongest keys."""
    tile = SINGLE if dtype == torch.float32 else HALF
    return tile._replace(lines=min(tile.lines, HELD_CELLS // _power_of_two(max(top, 1))))


class _Room:
    """Where the answers go, and what becomes of them."""

    def __init__(
        self, wanted: Wanted, sizes: Sizes, groups: int, cuts: Tensor, device: torch.device
    ) -> None:
        count, rows, keys = sizes
        self.top, self.cuts = wanted.top, cuts
        numbers = {"device": device, "dtype": torch.float32}
        whole = {"device": device, "dtype": torch.int32}
        self.received = torch.zeros((count, groups, keys), **numbers) if wanted.received else None
        self.entropy = torch.empty((count, rows), **numbers) if wanted.entropy else None
        self.strongest = None
        if wanted.top:
            shape = (count, rows, wanted.top)
            self.strongest = torch.empty(shape, device=device, dtype=torch.int64)
        self.sums = self.maxima = None
        self.bins: tuple[Tensor | None, Tensor | None] = (None, None)
        self.picture, self.window = (0, 0), 0
        if wanted.bins is not None and (wanted.sums or wanted.maxima):
            down, across = (bins.to(**whole).contiguous() for bins in wanted.bins)
            self.bins = down, across
            self.picture = int(down[-1]) + 1, int(across[-1]) + 1
            self.window = int(self._windows(down).max())
            if wanted.sums:
                shape = (count, groups, self.window, self.picture[1])
                self.sums = torch.zeros(shape, **numbers)
            if wanted.maxima:
                self.maxima = torch.zeros((count, *self.picture), **whole)

    def found(self) -> Found:
        """Return the answers."""
        received, entropy, sums = self.received, self.entropy, self.sums
        weights = keys = None
        if self.strongest is not None:
            # They are in no order; as numbers, they have one.
            held = self.strongest.sort(dim=-1, descending=True).values
            weights = (held >> 32).to(torch.int32).view(torch.float32)
            keys = 0xFFFFFFFF - (held & 0xFFFFFFFF)
        return Found(
            None if received is None else received.sum(1),
            # From 0, since a row that sees nothing would have −0 otherwise.
            None if entropy is None else 0.0 - entropy,
            weights,
            keys,
            None if sums is None else self._joined(sums),
            None if self.maxima is None else self.maxima.view(torch.float32),
        )

    def _windows(self, row_bins: Tensor) -> Tensor:
        """Return how many lines of the picture each group adds to."""
        first, last = self.cuts[:-1].long(), self.cuts[1:].long() - 1
        lines = row_bins[last.clamp(min=0)] - row_bins[first.clamp(max=len(row_bins) - 1)] + 1
        return lines.masked_fill(last < first, 0)

    def _joined(self, sums: Tensor) -> Tensor:
        """Return the picture that the groups' own parts of it add up to."""
        row_bins = self.bins[0]
        assert row_bins is not None
        joined = sums.new_zeros((sums.shape[0], *self.picture))
        first = row_bins[self.cuts[:-1].long().clamp(max=len(row_bins) - 1)].tolist()
        counts = self._windows(row_bins).tolist()
        for group, (start, count) in enumerate(zip(first, counts, strict=True)):
            joined[:, start : start + count] += sums[:, group, :count]
        return joined


def _starts(log_normalizer: Tensor) -> Tensor:
    """Return the negative log-normalisers, 0 for rows that see nothing."""
    known = log_normalizer.detach()
    return -known.masked_fill(known == -torch.inf, 0).contiguous()


def _bias_of(problem: Problem, rows: range) -> tuple[Tensor | int | None, ...]:
    """Return the bias of some rows, and its strides."""
    bias = problem.scoring.bias
    if bias is None:
        return None, 0, 0, 0, 0
    bias = bias.detach() if bias.shape[2] == 1 else bias.detach()[:, :, rows.start :]
    return bias, *_broadcast(bias)


def _hidden_parts(hidden: Hidden) -> tuple[Tensor | int | None, ...]:
    """Return what is hidden, in the order of the kernel, each with its strides."""
    first, last, valid, visible = hidden
    parts: tuple[Tensor | int | None, ...] = first, last
    parts += (0, 0) if first is None else _broadcast(first)[:2]
    parts += (None, 0) if valid is None else (valid.view(torch.uint8), _broadcast(valid)[0])
    if visible is None:
        return *parts, None, 0, 0, 0, 0
    return *parts, visible.view(torch.uint8), *_broadcast(visible)


def _broadcast(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of a tensor whose sizes of 1 stand for all."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(0 if size == 1 else stride for size, stride in pairs)


def _power_of_two(number: int) -> int:
    """Return the least power of 2 that is no less."""
    return 1 << (number - 1).bit_length()


def _programs(device: torch.device) -> int:
    """Return how many programs are to run on a device at once."""
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return PROGRAMS_EACH * torch.cuda.get_device_properties(device).multi_processor_count


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Return a block in which kernels run on a device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
