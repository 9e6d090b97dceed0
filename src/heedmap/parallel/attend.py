"""Attention over shards: the output of this rank's queries, and the map of all of them."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.errors import DTypeError, HeedmapError, ShapeError, UnsupportedError
from heedmap.lazy_weights import trace_of
from heedmap.masks import Mask, Padding, Window, parts_of
from heedmap.parallel import kernel
from heedmap.parallel.fingerprints import described
from heedmap.parallel.layout import Layout, require_layout
from heedmap.parallel.members import Members, Mesh, require_alike
from heedmap.parallel.reading import Normalizer
from heedmap.parallel.shards import Shards
from heedmap.parallel.weights import ShardedWeights
from heedmap.precision import never_compiled
from heedmap.problem import Problem, make_problem
from heedmap.scoring import Scoring

_numbers = count()
"""Of the calls of this process; those of rank 0 number the maps."""


@never_compiled
def attention(
    query: Float[Tensor, "*batch_heads own_queries head_dim"],
    key: Float[Tensor, "*batch_kv_heads own_keys head_dim"],
    value: Float[Tensor, "*batch_kv_heads own_keys value_dim"],
    *,
    mask: Mask | Bool[Tensor, "..."] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Float[Tensor, "..."] | None = None,
    sinks: Float[Tensor, " heads"] | None = None,
    mesh: Mesh | None = None,
    layout: Layout | None = None,
) -> tuple[Float[Tensor, "*batch_heads own_queries value_dim"], AttentionMap]:
    """Return the output of this rank's queries over all keys, and the map of the whole sequence.

    Every rank of the mesh calls it, each with its own part of the sequence, and with the same of
    everything else. Keys and values are passed on while each rank works on those that it has; what
    they add is merged by log-normalisers in float32, in float64 for float64.

    The map has the shape of the whole sequence. Whatever is asked of it, every rank must ask:
    rows, blocks and sums come back whole, the same on every rank, so that a loss of them counts
    once; `AttentionMap.summarize` gives each rank its own part, see `gather_summary`.

    Args:
        query: This rank's queries, in the order of its part of `layout`.
        key: This rank's keys.
        value: This rank's values.
        mask: Who may look at whom, of the whole sequence; the same on every rank.
        scale: As for `heedmap.attention`; so are `soft_cap` and `sinks`.
        soft_cap: Squash scores into ±soft_cap before bias and mask.
        bias: Scores to add, of this rank's queries and all keys; sizes of 1 stand for all.
        sinks: A score for each head that takes part in the softmax and belongs to no key.
        mesh: The processes: a `DeviceMesh` of one dimension or a process group; None for all.
        layout: Which positions each rank has, of queries and of keys; None for one stretch each,
            in the order of ranks, as long as what the rank gives (then queries and keys may be
            different positions). `Layout.zigzag` shares causal work equally.

    Returns:
        The output, in the number type of query, and the map. Gradients of both reach this rank's
        query, key and value as in one process. Those of `sinks`, and of a bias that stands for all
        queries, hold what this rank's queries add, as for any parameter that ranks share.

    Raises:
        RankError: if ranks differ in what must be the same, or one of them cannot take part.
        ShapeError, DTypeError, ArgumentError: as for `heedmap.attention`.
        UnsupportedError: where no process group was started; under torch.func.

    Cost: O(query · key / ranks) time, and what a rank has of key and value sent to each other rank
    that may look at it; memory of three ranks' keys and values, and of the output. A few numbers
    are compared first, which takes about a millisecond. Backward: the same twice over. What is
    asked of the map's rows, heads, or cells computed from its cells, goes through it in the same
    way; some of its rows or columns, its transpose, and products of maps are put together by every
    rank for itself, a block at a time.

    Exactness: as for `heedmap.attention`. PyTorch's own context parallel is not used: it runs on
    CUDA alone, knows no masks but the causal one, and gives no log-normaliser.

    Example:
        Under ``torchrun --nproc-per-node 2``::

            mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
            layout = parallel.Layout.zigzag(1000, 2)
            own = layout.shard(x, mesh.get_rank(), dim=-2)
            output, weights = parallel.attention(
                own, own, own, mask=Causal(), mesh=mesh, layout=layout
            )
    """
    members = Members.of(mesh)
    if torch._C._are_functorch_transforms_active():
        raise UnsupportedError(
            "attention over several ranks must be called outside torch.func; got a call within a "
            "transform. Use backward() or torch.autograd.grad."
        )
    error, local = None, None
    told: dict[str, Any] = {}
    try:
        require_layout(layout)
        if value is None:
            raise DTypeError("value must be a tensor, on every rank; got None.")
        local = _checked(query, key, value, scale, soft_cap, bias, sinks)
        members.require_device(query.device)
        told = _told(query, value, local, mask, layout) | {"number": next(_numbers)}
        _require_layout(layout, members, told["positions"])
    except HeedmapError as refused:
        error = refused
    found = members.agree("attention", told, error)
    assert local is not None
    own_matter = {"positions", "number"}
    require_alike([{name: told[name] for name in told if name not in own_matter} for told in found])
    queries, keys = (
        layout or Layout.of_lengths([told["positions"][side] for told in found]) for side in (0, 1)
    )
    shards, values = _shards(
        members, queries, keys, (query, key, value), mask, local, found[0]["number"]
    )
    output, normalizer = kernel.run(shards, values)
    known = Normalizer(shards, normalizer, trace_of(output, values))
    weights = ShardedWeights(shards, known)
    if query.ndim < 4:
        output = output.reshape(*query.shape[:-1], value.shape[-1])
    return output, AttentionMap(weights, tuple(query.shape[:-2]), dtype=query.dtype)


def _checked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None,
    soft_cap: float | None,
    bias: Tensor | None,
    sinks: Tensor | None,
) -> Problem:
    """Return this rank's own problem without a mask, its scoring with a bias of all keys.

    Raises:
        ShapeError, DTypeError, ArgumentError: for what makes none.
    """
    local, _ = make_problem(
        query, key, value, mask=None, scale=scale, soft_cap=soft_cap, bias=None, sinks=sinks
    )
    if bias is None:
        return local
    batch, heads, own, _ = local.query.shape
    keys = bias.shape[-1] if isinstance(bias, Tensor) and bias.ndim else 1
    biased, _ = make_problem(
        local.query.new_empty((batch, heads, own, 0)),
        local.query.new_empty((batch, heads, keys, 0)),
        None,
        mask=None,
        scale=None,
        soft_cap=None,
        bias=bias,
        sinks=None,
    )
    scoring = local.scoring
    full = Scoring(scoring.scale, scoring.soft_cap, biased.scoring.bias, scoring.sinks)
    return Problem(local.query, local.key, None, full)


def _told(
    query: Tensor, value: Tensor, local: Problem, mask: Mask | Tensor | None, layout: Layout | None
) -> dict[str, Any]:
    """Return what the ranks compare, by name, and how many positions this one has."""
    bias = local.scoring.bias
    given = (*local.tensors(), value)
    batch, heads, own, width = local.query.shape
    return {
        "positions": (own, local.key.shape[2]),
        "the number type": str(query.dtype),
        "the number of dimensions": query.ndim,
        "the batch size": batch,
        "the numbers of heads of query and key": (heads, local.key.shape[1]),
        "the widths of query and value": (width, value.shape[-1]),
        "scale": local.scoring.scale,
        "soft_cap": local.scoring.soft_cap,
        "sinks": described(local.scoring.sinks),
        "the batch, heads and keys of bias": None
        if bias is None
        else (*bias.shape[:2], bias.shape[3]),
        "mask": described(mask),
        "layout": None if layout is None else repr(layout.spans),
        "what requires a gradient": [
            torch.is_grad_enabled() and tensor.requires_grad for tensor in given
        ],
    }


def _require_layout(layout: Layout | None, members: Members, own: tuple[int, int]) -> None:
    """Refuse a layout of another number of ranks, or of other lengths than this rank gives.

    Raises:
        ShapeError: for such a one.
    """
    if layout is None:
        return
    if layout.ranks != members.size:
        raise ShapeError(
            f"layout must be of as many ranks as the mesh has, {members.size}; got {layout.ranks}."
        )
    expected = layout.lengths[members.rank]
    if own != (expected, expected):
        raise ShapeError(
            f"what rank {members.rank} gives must be the {expected} positions that layout says; "
            f"got {own[0]} of query, {own[1]} of key. Take layout.shard(whole, rank, dim=-2)."
        )


def _shards(
    members: Members,
    queries: Layout,
    keys: Layout,
    given: Sequence[Tensor],
    mask: Mask | Tensor | None,
    local: Problem,
    number: int,
) -> tuple[Shards, Tensor]:
    """Return the problem with its mask bound to the whole sequence, and this rank's values.

    Where anything is NaN, infinite or huge, padded slots of key and value are set to 0.
    """
    batch, heads, _, _ = local.query.shape
    scoring = local.scoring
    whole = [local.query.new_empty((batch, heads, part.size, 0)) for part in (queries, keys)]
    options: dict[str, Any] = {"scale": None, "soft_cap": None, "bias": None, "sinks": None}
    bound = make_problem(whole[0], whole[1], None, mask=mask, **options)[0].mask
    if scoring.bias is not None and scoring.bias.shape[3] not in (1, keys.size):
        raise ShapeError(
            f"bias must be of this rank's queries and all {keys.size} keys, or 1 for all; got "
            f"{scoring.bias.shape[3]} keys."
        )
    own: Mask | None = None
    if bound is not None or scoring.bias is not None:
        # A mask that hides nothing, so that what is not finite is looked for.
        own = Window(0)
        for part in parts_of(bound):
            if isinstance(part, Padding):
                own = own & Padding(keys.shard(part.valid, members.rank, dim=1))
    problem, values = make_problem(*given, mask=own, **options)
    assert values is not None
    clean = [True] * members.size
    if own is not None:
        clean = members.gather(problem.clean)
    own_parts = problem.query, problem.key
    made = Shards(members, queries, keys, *own_parts, bound, scoring, tuple(clean), number)
    return made, values
