"""`SelfAttention` on a shared sequence gives what it gives on one process."""

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from heedmap import parallel
from heedmap.errors import ArgumentError, HeedmapError, ShapeError, UnsupportedError
from heedmap.nn import SelfAttention
from heedmap.parallel import Layout

from .processes import Processes

LENGTH, FEATURES = 13, 6


def sequences() -> tuple[Tensor, Tensor]:
    """Return two sequences, one of them padded, whose padding is no number."""
    x = torch.randn(2, LENGTH, FEATURES, generator=torch.Generator().manual_seed(1)).double()
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[0, 9:] = 0
    x[0, 11] = torch.nan
    return x, mask


def layer(**options: Any) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(FEATURES, 8, num_heads=4, output_dim=5, **options).double()


def compare_layer(causal: bool, zigzag: bool, padded: bool) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    layout = Layout.zigzag(LENGTH, ranks) if zigzag else None
    place = layout or Layout.even(LENGTH, ranks)
    x, mask = sequences()
    given = mask if padded else None
    x = x if padded else x.nan_to_num()
    alone = layer(causal=causal, kv_heads=2)
    shared = layer(causal=causal, kv_heads=2, mesh=parallel.start(device="cpu"))
    whole = x.clone().requires_grad_()
    own = place.shard(x, rank, dim=1).clone().requires_grad_()
    expected, known = alone(whole, given)
    own_mask = None if given is None else place.shard(given, rank, dim=1)
    output, weights = shared(own, own_mask, layout=layout)
    torch.testing.assert_close(output, place.shard(expected, rank, dim=1), atol=1e-12, rtol=0)
    assert weights.shape == known.shape
    torch.testing.assert_close(weights.received(), known.received(), atol=1e-12, rtol=0)
    torch.testing.assert_close(weights[0, 2, 5], known[0, 2, 5], atol=1e-12, rtol=0)
    expected.square().sum().backward()
    output.square().sum().backward()
    assert whole.grad is not None
    torch.testing.assert_close(own.grad, place.shard(whole.grad, rank, dim=1), atol=1e-11, rtol=0)
    for mine, theirs in zip(shared.parameters(), alone.parameters(), strict=True):
        dist.all_reduce(mine.grad)
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-11, rtol=0)
    parallel.stop()


@pytest.mark.parametrize(("ranks", "zigzag"), [(2, True), (3, False)])
def test_it_is_that_of_one_process(processes: Processes, ranks: int, zigzag: bool) -> None:
    for causal, padded in ((False, True), (True, False), (True, True)):
        processes.run(ranks, compare_layer, causal, zigzag, padded)


def train_with_ddp() -> list[float]:
    """Train a step on two ranks and on one; return the largest differences."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x = sequences()[0].nan_to_num()[:, :12]
    place = Layout.even(12, ranks)
    alone = layer(causal=True)
    shared = copy.deepcopy(alone)
    shared.mesh = dist.group.WORLD
    model = DistributedDataParallel(shared)
    output, _ = model(place.shard(x, rank, dim=1))
    output.square().mean().backward()
    alone(x)[0].square().mean().backward()
    return [
        float((mine.grad - theirs.grad).abs().amax())
        for mine, theirs in zip(shared.parameters(), alone.parameters(), strict=True)
    ]


def test_the_mean_of_ddp_is_the_gradient_of_a_mean(processes: Processes) -> None:
    for differences in processes.run(2, train_with_ddp):
        assert max(differences) < 1e-14


def attend_across() -> None:
    """Look from one sequence, shared one way, at another one."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, mask = sequences()
    context = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(5)).double()
    alone = layer(context_dim=3)
    shared = copy.deepcopy(alone)
    shared.mesh = dist.group.WORLD
    x = x.nan_to_num()
    valid = mask[:, :7]
    queries, keys = Layout.even(LENGTH, ranks), Layout.of_lengths([5, 2])
    expected, _ = alone(x, valid, context=context)
    output, weights = shared(
        queries.shard(x, rank, dim=1),
        keys.shard(valid, rank, dim=1),
        context=keys.shard(context, rank, dim=1),
    )
    torch.testing.assert_close(output, queries.shard(expected, rank, dim=1), atol=1e-12, rtol=0)
    assert weights.shape == (2, 4, LENGTH, 7)


def test_cross_attention(processes: Processes) -> None:
    processes.run(2, attend_across)


def go_wrong(what: str) -> Any:
    own = torch.ones(2, 3, FEATURES)
    module = SelfAttention(FEATURES, 8, mesh=dist.group.WORLD)
    second = dist.get_rank() == 1
    try:
        if what == "a mask on one rank":
            module(own, torch.ones(2, 3) if second else None)
        if what == "a shape on one rank":
            module(torch.ones(2, 3, FEATURES + 1) if second else own)
        if what == "no layout":
            module(own, torch.ones(2, 3), layout="z")  # pyright: ignore[reportArgumentType]
    except HeedmapError as error:
        return type(error).__name__, str(error)
    return None


def test_ranks_that_disagree(processes: Processes) -> None:
    for kind, said in processes.run(2, go_wrong, "a mask on one rank"):
        assert kind == "RankError"
        assert "mask must be given on all ranks or on none, of the same batch" in said
    found = processes.run(2, go_wrong, "a shape on one rank")
    assert found[1][0] == ShapeError.__name__
    assert found[0][0] == "RankError"
    assert "rank 1 must be able to take part" in found[0][1]


@pytest.mark.bad_input
def test_a_word_is_no_layout(processes: Processes) -> None:
    for kind, said in processes.run(2, go_wrong, "no layout"):
        assert kind == "ArgumentError"
        assert "layout must be a heedmap.parallel.Layout or None; got str" in said


def test_dropout_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="dropout must be 0 where ranks share a sequence"):
        SelfAttention(4, 4, dropout=0.1, mesh=object())  # pyright: ignore[reportArgumentType]


def test_a_layout_needs_a_mesh() -> None:
    with pytest.raises(ArgumentError, match="layout must be given where ranks share a sequence"):
        SelfAttention(4, 4)(torch.ones(1, 2, 4), layout=Layout.even(2, 1))


def test_a_layer_says_that_it_is_shared(processes: Processes) -> None:
    assert processes.run(1, say_it) == ["num_heads=1, kv_heads=1, mesh=…"]


def say_it() -> str:
    module = SelfAttention(4, 4, mesh=parallel.start(device="cpu"))
    parallel.stop()
    return module.extra_repr()
