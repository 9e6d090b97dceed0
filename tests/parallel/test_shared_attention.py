"""Attention over several ranks finds what one process finds, and what each keeps gets less."""

import ctypes
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Window, places
from heedmap.errors import UnsupportedError
from heedmap.kernels import tiles
from heedmap.parallel import Layout, attention
from heedmap.parallel.members import Members

from ..checked import unchecked
from ..conftest import _forbid_dense
from .processes import Processes
from .shared_problems import (
    CASES,
    LAYOUTS,
    LENGTH,
    loss_of,
    questions,
    shards_of,
    some_values,
    whole,
)


def close(found: Tensor, expected: Tensor, name: str, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(
        found.double(),
        expected.double(),
        atol=tolerance,
        rtol=tolerance,
        equal_nan=True,
        msg=lambda told: f"{name}: {told}",
    )


def compare(name: str) -> None:
    """Compare everything with one process: output, answers, gradients."""
    rank, size, case = dist.get_rank(), dist.get_world_size(), CASES[name]
    layout, problem = LAYOUTS[case.layout](size), whole(case)
    parts = shards_of(problem, layout, rank, torch.float64)
    options = dict(problem.options)
    given = iter(parts[3:])
    options |= {key: next(given) for key in ("bias", "sinks") if key in options}
    output, weights = attention(*parts[:3], **options, layout=layout)
    assert weights.shape == problem.weights.shape
    close(output, layout.shard(problem.output, rank, dim=2), f"{name}, output")
    values = some_values(), some_values()
    found, expected = questions(weights, values[0]), questions(problem.weights, values[1])
    for question, answer in expected.items():
        close(found[question], answer, f"{name}, {question}")
    up = torch.linspace(-1, 2, problem.output.numel(), dtype=torch.float64)
    up = up.reshape(problem.output.shape)
    loss_of(output, found, layout.shard(up, rank, dim=2)).backward()
    loss_of(problem.output, expected, up).backward()
    for number, (part, tensor) in enumerate(zip(parts, problem.inputs, strict=True)):
        grad, own = tensor.grad, part.grad
        assert grad is not None
        assert own is not None
        if number < 3 or (part.ndim == 4 and tensor.shape[2] == LENGTH):
            grad = layout.shard(grad, rank, dim=2)
        else:
            dist.all_reduce(own)
        close(own, grad, f"{name}, gradient {number}", 1e-11)
    assert values[0].grad is not None
    assert values[1].grad is not None
    close(values[0].grad, values[1].grad, f"{name}, gradient of values")
    compare_summaries(name, weights, problem.weights, layout)


def compare_summaries(
    name: str, weights: AttentionMap, expected: AttentionMap, layout: Layout
) -> None:
    rank = dist.get_rank()
    for mine, whole_map in ((weights, expected), (weights.mean(1), expected.mean(1))):
        own, one = mine.summarize(top=4, pool=(6, 9)), whole_map.summarize(top=4, pool=(6, 9))
        close(own.received, layout.shard(one.received, rank, -1), f"{name}, own received")
        close(own.entropy, layout.shard(one.entropy, rank, -1), f"{name}, own entropy")
        close(own.top_weights, layout.shard(one.top_weights, rank, -2), f"{name}, own top")
        close(own.top_keys, layout.shard(one.top_keys, rank, -2), f"{name}, own top keys")
        close(own.pooled, one.pooled, f"{name}, picture")
        gathered = mine.gather_summary(top=4, pool=(6, 9))
        if rank:
            assert gathered is None
            continue
        for answer in ("received", "entropy", "top_weights", "top_keys", "pooled"):
            close(getattr(gathered, answer), getattr(one, answer), f"{name}, gathered {answer}")


@pytest.mark.parametrize("name", CASES)
def test_as_on_one_process(processes: Processes, name: str) -> None:
    processes.run(3, compare, name)


def stretches_the_wrong_way_round() -> None:
    layout = Layout(((range(5, 12), range(5)),))
    x = torch.linspace(0, 3, 48).reshape(1, 1, 12, 4)
    own = layout.shard(x, 0, dim=2)
    found = attention(own, own, own, layout=layout)[1].gather_summary(top=2)
    assert found is not None
    close(found.received, heedmap.attention(x, x, x)[1].received(), "received", 1e-5)


def test_gathered_in_order_of_positions_by_one_rank(processes: Processes) -> None:
    processes.run(1, stretches_the_wrong_way_round)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["causal, uneven", "padded"])
def test_on_fewer_and_more(processes: Processes, ranks: int, name: str) -> None:
    processes.run(ranks, compare, name)


def compare_in_small_blocks(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, values in (
            (places, {"CELLS": 150, "LEAST_SIDE": 5, "SIDE": 12}),
            (tiles, {"SIDE": 12}),
        ):
            for constant, value in values.items():
                patch.setattr(module, constant, value)
        with unchecked():
            compare(name)


@pytest.mark.parametrize("name", ["causal, uneven", "causal window"])
def test_in_blocks_of_any_size(processes: Processes, name: str) -> None:
    processes.run(2, compare_in_small_blocks, name)


def gradients_of_maps() -> None:
    """The gradient with respect to the map is a map over the same ranks."""
    rank, case = dist.get_rank(), CASES["causal, uneven"]
    layout, problem = LAYOUTS[case.layout](dist.get_world_size()), whole(case)
    parts = shards_of(problem, layout, rank, torch.float64)
    output, weights = attention(*parts, mask=Causal(), layout=layout)
    expected, one = heedmap.attention(*problem.inputs, mask=Causal())
    told: list[AttentionMap] = []
    weights.register_hook(told.append)
    weights.retain_grad()
    loss, whole_loss = output.square().sum(), expected.square().sum()
    (found,) = torch.autograd.grad(loss, [weights], retain_graph=True)
    (exact,) = torch.autograd.grad(whole_loss, [one])
    close(found.to_dense(), exact.to_dense(), "gradient of a map")
    close(found.mean(1).received(), exact.mean(1).received(), "what its columns hold")
    with pytest.raises(UnsupportedError, match="it also reads the weights"):
        torch.autograd.grad(loss + weights.entropy().sum(), [weights], retain_graph=True)
    loss.backward()
    close(told[-1][0, 0, 7].to_dense(), exact[0, 0, 7].to_dense(), "what a hook is told")
    assert weights.grad is not None
    # Twice: once for autograd.grad, which a prehook hears of as well.
    close(weights.grad[1, 1].to_dense() / len(told), exact[1, 1].to_dense(), "what is kept")


def test_gradients_with_respect_to_the_map(processes: Processes) -> None:
    processes.run(2, gradients_of_maps)


def errors_in(dtype: torch.dtype, factor: float) -> list[dict[str, float]]:
    """Return how far from float64 two ranks are, and one process is, in half or single digits."""
    rank, size = dist.get_rank(), dist.get_world_size()
    case = CASES["causal, uneven"]
    layout, problem = LAYOUTS[case.layout](size), whole(case, dtype, factor)
    parts = shards_of(problem, layout, rank, dtype)
    shared = attention(*parts, mask=Causal(), layout=layout)
    one = heedmap.attention(*(t.detach().to(dtype) for t in problem.inputs), mask=Causal())
    exact = {"output": problem.output, **plain(problem.weights)}
    found = {"output": layout.whole(gather(shared[0], layout), 2), **plain(shared[1])}
    alone = {"output": one[0], **plain(one[1])}
    return [
        {name: float((some[name].double() - exact[name]).detach().abs().max()) for name in exact}
        for some in (found, alone)
    ]


def gather(part: Tensor, layout: Layout) -> list[Tensor]:
    found: list[Any] = [None] * layout.ranks
    dist.all_gather_object(found, part.detach())
    return found


def plain(weights: AttentionMap) -> dict[str, Tensor]:
    weights = weights.detach()
    return {
        "weights": weights.to_dense(),
        "received": weights.received(),
        "entropy": weights.entropy(),
        "top": weights.topk(3).values,
        "picture": weights.pool(6, 9),
    }


@pytest.mark.parametrize("factor", [1, 60])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_further_from_float64_than_one_process(
    processes: Processes, dtype: torch.dtype, factor: int
) -> None:
    for found, alone in processes.run(3, errors_in, dtype, factor):
        for name, error in found.items():
            allowed = 1.5 * alone[name] + 1e-6 * (LENGTH if name == "received" else 1)
            assert error <= allowed, (name, error, alone[name])


def native_answers() -> None:
    """Compare the statistics of our kernel in float32, ties and hidden keys included."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    query = torch.randn(1, 2, 300, 16)
    query[:, :, ::3] = 0
    for mask in (Causal(), Window(before=20, after=3), None):
        layout = Layout.zigzag(300, size)
        own = layout.shard(query, rank, dim=2)
        weights = attention(own, own, own, mask=mask, layout=layout)[1]
        one = heedmap.attention(query, query, query, mask=mask)[1]
        found = weights.gather_summary(top=5, pool=(40, 7))
        expected = one.summarize(top=5, pool=(40, 7))
        if found is not None:
            for answer in ("received", "entropy", "top_weights", "pooled"):
                close(getattr(found, answer), getattr(expected, answer), answer, 3e-6)
            assert torch.equal(found.top_keys[:, :, ::3], expected.top_keys[:, :, ::3])


def test_statistics_of_our_kernel(processes: Processes) -> None:
    processes.run(3, native_answers)


def low_rows() -> None:
    """A row of scores so low that float32 cannot count them is a row like any."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    query, key, value = torch.randn(3, 1, 1, 64, 8)
    bias = torch.zeros(64, 64)
    bias[5], bias[6] = torch.finfo(torch.float32).min, -1e9
    layout = Layout.of_lengths([20, 64 - 20 - size + 2, *[1] * (size - 2)])
    own = [layout.shard(t, rank, dim=2) for t in (query, key, value)]
    output, weights = attention(*own, bias=layout.shard(bias, rank, dim=0), layout=layout)
    exact = torch.softmax(query.double() @ key.double().mT / 8**0.5 + bias.double(), -1)
    low = torch.full((64,), 1 / 64, dtype=torch.float64)
    close(weights[0, 0, 5].to_dense(), low, "lowest row", 1e-6)
    close(weights.to_dense(), exact, "all rows", 1e-5)
    close(weights.sum(-1), torch.ones(1, 1, 64), "sums", 1e-6)
    expected = layout.shard(value.mean(2, keepdim=True).expand(-1, -1, 64, -1), rank, dim=2)
    for line, number in enumerate(layout.positions(rank).tolist()):
        if number in (5, 6):
            close(output[:, :, line], expected[:, :, line], "output of a low row", 1e-5)


def test_rows_of_low_scores(processes: Processes) -> None:
    processes.run(3, low_rows)


def peak_bytes(length: int) -> int:
    """Return by how much memory grows for output, answers and gradients of a long sequence."""
    rank, size = dist.get_rank(), dist.get_world_size()
    layout = Layout.even(length, size)
    own = [torch.randn(1, 2, layout.lengths[rank], 64).requires_grad_() for _ in range(3)]
    mask = Causal() & Window(before=30)
    with _forbid_dense(length * length // 64):
        attention(*(t[:, :, :8] for t in own), mask=mask)[1].summarize(top=2)
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    output, weights = attention(*own, mask=mask, layout=layout)
    weights.summarize(top=2, pool=(64, 64))
    (output.sum() + weights.log_normalizer.sum()).backward()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) << 10


def test_each_rank_needs_less_the_more_there_are(processes: Processes) -> None:
    few, many = (max(processes.run(ranks, peak_bytes, 1 << 16)) for ranks in (2, 4))
    assert many < 0.65 * few
    # In units of what a rank has of one of query, key, value.
    assert few < 22 * (1 << 16) // 2 * 2 * 64 * 4


def nothing_sent() -> list[int]:
    """Return what each rank is sent of keys and values by whom, for windows and documents."""
    sent: list[int] = []
    own_exchange = Members.exchange

    def counted(self: Any, sent_now: Any = (), received: Any = ()) -> Any:
        sent.extend(rank for rank, tensor in received if tensor.numel())
        return own_exchange(self, sent_now, received)

    Members.exchange = counted  # pyright: ignore[reportAttributeAccessIssue]
    try:
        x = torch.randn(1, 1, 8, 4)
        attention(x, x, x, mask=Causal() & Window(before=5))
    finally:
        Members.exchange = own_exchange
    return sent


def test_what_nobody_sees_is_not_sent(processes: Processes) -> None:
    assert processes.run(4, nothing_sent) == [[], [0, 0], [1, 1], [2, 2]]


def two_sides() -> None:
    """Queries and keys of different sequences, three-dimensional, and without a layout."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    query, key = torch.randn(2, 9, 4), torch.randn(2, 17, 4)
    queries, keys = Layout.even(9, size), Layout.of_lengths([17 - size + 1, *[1] * (size - 1)])
    own = keys.shard(key, rank, dim=1)
    mask = Causal(alignment="end")
    output, weights = attention(queries.shard(query, rank, 1), own, own, mask=mask)
    expected, one = heedmap.attention(query, key, key, mask=mask)
    close(output, queries.shard(expected, rank, 1), "output", 1e-6)
    assert weights.shape == (2, 9, 17)
    close(weights.received(), one.received(), "received", 1e-5)
    group = dist.new_group([rank], use_local_synchronization=True)
    alone = attention(query[0], key[0], key[0], mask=mask, mesh=group)  # pyright: ignore
    close(alone[1].to_dense(), one[0].to_dense(), "a group of one", 1e-6)


def test_other_keys_than_queries(processes: Processes) -> None:
    processes.run(3, two_sides)


def shown() -> str:
    x = torch.randn(1, 1, 6, 4)
    weights = attention(x, x, x, mask=Causal())[1]
    # Only one rank prints.
    return "" if dist.get_rank() else f"{weights!r} {weights[0].mT!r} {weights.backend}"


def test_one_rank_may_print(processes: Processes) -> None:
    said = processes.run(2, shown)[0]
    assert "shape=[1, 1, 12, 12]" in said
    assert "rank 0 of 2 has 6 queries" in said
    assert said.endswith("sharded")


def checked() -> tuple[float, bool]:
    """Copy a map, and ask a map without gradients after one with them."""
    import copy

    x = torch.randn(1, 1, 6, 4, requires_grad=True)
    with torch.no_grad():
        weights = attention(x, x, x)[1]
    assert not weights.requires_grad
    again = copy.deepcopy(weights)
    with torch.no_grad():
        x.zero_()
    return float(again.sum()), math.isclose(float(again.sum()), 12, rel_tol=1e-5)


def test_copies_stand_on_their_own(processes: Processes) -> None:
    assert [same for _, same in processes.run(2, checked)] == [True, True]
