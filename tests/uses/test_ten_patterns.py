"""The ten things that people do with attention weights, as they write them.

Each is run on maps and on ordinary tensors at 12 positions, where both must agree; and, where it
can be done lazily, on maps of 8,192 positions under a budget of 0 bytes.
"""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import heedmap
from heedmap import AttentionMap

SMALL, LARGE = 12, 8192
Maps = list[AttentionMap] | list[Tensor]


def make(
    positions: int,
    *,
    layers: int = 2,
    batch: int = 1,
    heads: int = 2,
    queries: int | None = None,
    grad: bool = False,
) -> list[AttentionMap]:
    torch.manual_seed(positions)
    shape = (batch, heads, positions, 8)
    queries = positions if queries is None else queries
    return [
        AttentionMap.from_factors(
            torch.randn(batch, heads, queries, 8, requires_grad=grad),
            torch.randn(shape, requires_grad=grad),
        )
        for _ in range(layers)
    ]


def dense(maps: Maps) -> list[Tensor]:
    return [held.to_dense() if isinstance(held, AttentionMap) else held for held in maps]


def agree(pattern: Callable[[Maps], Tensor], maps: list[AttentionMap], atol: float = 1e-6) -> None:
    expected = pattern(dense(maps))
    found = pattern(maps)
    torch.testing.assert_close(found, expected, atol=atol, rtol=1e-5)


def lazily(pattern: Callable[[Maps], Tensor], maps: Maps) -> Tensor:
    with heedmap.dense_budget(0):
        found = pattern(maps)
    assert torch.isfinite(found).all()
    return found


def mean_over_layers_and_heads(maps: Maps) -> Tensor:
    stacked = torch.stack(maps).mean((0, 2))
    weights = stacked[0, 0].detach().cpu().numpy()
    return torch.from_numpy((-weights).argsort())


def test_p01_mean_over_layers_and_heads() -> None:
    agree(mean_over_layers_and_heads, make(SMALL))
    assert len(lazily(mean_over_layers_and_heads, make(LARGE))) == LARGE


def rollout(maps: Maps, how: str, write: bool) -> Tensor:
    positions = maps[0].size(-1)
    rolled = torch.eye(positions)
    for weights in maps:
        fused = weights.mean(axis=1) if how == "mean" else weights.max(axis=1)[0]
        if write:
            flat = fused.view(1, -1)
            if isinstance(flat, AttentionMap):
                with pytest.raises(heedmap.HeedmapError, match=r"clone\(\)"):
                    flat[0, flat.topk(3, -1, False)[1]] = 0
            flat = flat.clone()
            flat[0, flat.topk(3, -1, False)[1]] = 0
            fused = flat.view(1, positions, positions)
        fused = (fused + torch.eye(positions)) / 2
        fused = fused / fused.sum(-1)
        rolled = fused @ rolled
    width = math.isqrt(positions - 1)
    seen = rolled[0, 0, 1 : 1 + width * width]
    return torch.from_numpy(seen.reshape(width, width).numpy())


@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("write", [False, True])
def test_p02_rollout(how: str, write: bool) -> None:
    agree(lambda maps: rollout(maps, how, write), make(SMALL, layers=3))


def test_p02_rollout_lazily() -> None:
    maps = make(LARGE, heads=1)
    found = lazily(lambda given: rollout(given, "mean", False), maps)
    row = torch.zeros(1, LARGE)
    row[0, 0] = 1
    sums = [(held.mean(1) + 0).sum(-1)[0] for held in maps]
    for held, total in zip(reversed(maps), reversed(sums), strict=True):
        row = (row @ held[0, 0] + row) / 2 / ((total + 1) / 2)
    torch.testing.assert_close(found.flatten(), row[0, 1 : 1 + found.numel()], atol=1e-7, rtol=1e-3)


def threshold_of_the_first_row(maps: Maps) -> Tensor:
    heads, positions = maps[0].shape[1], maps[0].shape[-1]
    width = math.isqrt(positions - 1)
    first = maps[0][0, :, 0, 1 : 1 + width * width].reshape(heads, -1)
    value, place = torch.sort(first)
    value /= value.sum(1, keepdim=True)
    keep = torch.cumsum(value, 1) > 1 - 0.6
    keep = keep.gather(1, place.argsort())
    kept = (first * keep).reshape(heads, width, width)
    return F.interpolate(kept[None], scale_factor=2)


def test_p03_threshold_of_the_first_row() -> None:
    agree(threshold_of_the_first_row, make(SMALL))
    assert lazily(threshold_of_the_first_row, make(LARGE)).shape[-1] == 180


def keys_worth_keeping(maps: Maps) -> Tensor:
    window, kernel = 4, 3
    seen = F.avg_pool1d(maps[0][..., -window:, :-window].mean(-2), kernel, padding=1, stride=1)
    batch, heads, keys = seen.shape
    return seen.view(batch, heads // 2, 2, keys).mean(2).topk(3).values


def test_p04_keys_worth_keeping() -> None:
    agree(keys_worth_keeping, make(SMALL, heads=4))
    assert lazily(keys_worth_keeping, make(LARGE, heads=4)).shape == (1, 2, 3)


def share_on_the_context(maps: Maps) -> Tensor:
    shares = torch.zeros(len(maps), maps[0].shape[1], 1)
    context = 5
    for layer, weights in enumerate(maps):
        row = weights[0, :, -1]
        early, late = row[:, :context].mean(-1), row[:, context:].mean(-1)
        shares[layer, :, 0] = early / (early + late)
    return shares


def test_p05_share_on_the_context() -> None:
    agree(share_on_the_context, make(SMALL))
    lazily(share_on_the_context, make(LARGE))


def strongest_in_a_span(maps: Maps) -> Tensor:
    start, end = 2, 10
    return maps[0].mean(1)[0][-1][start:end].topk(3).indices + start


def test_p06_strongest_in_a_span() -> None:
    agree(strongest_in_a_span, make(SMALL))
    lazily(strongest_in_a_span, make(LARGE))


def cross_attention_for_word_times(maps: Maps) -> Tensor:
    half = len(maps) // 2
    layers = [torch.cat(maps[:half], 2), torch.cat(maps[half:], 2)]
    picked = torch.stack([layers[layer][:, head] for layer, head in ((0, 1), (1, 0), (1, 1))])
    weights = picked.permute(1, 0, 2, 3)[..., :10]
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    weights = (weights - mean) / deviation
    padded = F.pad(weights, (1, 1, 0, 0), mode="reflect")
    weights = padded.unfold(-1, 3, 1).sort()[0][..., 1]
    return torch.from_numpy(-weights.mean(1).double().numpy())


def test_p07_cross_attention_for_word_times() -> None:
    agree(cross_attention_for_word_times, make(SMALL, layers=6, queries=1), atol=1e-5)
    lazily(
        lambda maps: (
            torch.stack([torch.cat(maps[:3], 2)[:, 1], torch.cat(maps[3:], 2)[:, 0]])
            .permute(1, 0, 2, 3)[..., :10]
            .mean(-2)
        ),
        make(LARGE, layers=6, queries=1),
    )


def distance_to_the_start(maps: Maps) -> Tensor:
    keys = maps[0].shape[-1]
    return maps[0].diagonal(offset=1 - keys, dim1=-2, dim2=-1).mean(-1)


def along_the_diagonal(maps: Maps) -> Tensor:
    return maps[0].diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1)


@pytest.mark.parametrize("pattern", [distance_to_the_start, along_the_diagonal])
def test_p08_diagonals(pattern: Callable[[Maps], Tensor]) -> None:
    agree(pattern, make(SMALL))
    lazily(pattern, make(LARGE))


def guided_loss(maps: Maps) -> Tensor:
    weights = maps[0]
    positions = torch.arange(weights.shape[-1]) / weights.shape[-1]
    penalty = 1 - torch.exp(-((positions[:, None] - positions) ** 2) / 0.08)
    marks = torch.ones(1, 1, *weights.shape[-2:], dtype=torch.bool)
    marks[..., -2:] = False
    layers = torch.stack([weights[:, 0], weights[:, 1]], 1)
    return (penalty.to(weights.device)[None, None] * layers).masked_select(marks).mean()


def test_p09_guided_attention_loss() -> None:
    maps = make(SMALL, grad=True)
    agree(guided_loss, maps)
    factors = maps[0]._rule.tensors()[:2]
    expected = torch.autograd.grad(guided_loss(dense(maps)), factors)
    with heedmap.dense_budget(0):
        found = torch.autograd.grad(guided_loss(maps), factors)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-4)


def test_p09_guided_attention_loss_lazily() -> None:
    maps = make(LARGE, grad=True)
    query, key = maps[0]._rule.tensors()[:2]
    lazily(guided_loss, maps).backward()
    assert query.grad is not None
    assert key.grad is not None
    assert torch.isfinite(query.grad).all()
    assert query.grad.abs().sum() > 0


def relevance(
    attend: Callable[[Tensor], tuple[Tensor, Tensor]], values: Tensor, rows: slice
) -> Tensor:
    output, weights = attend(values)
    score = output[0, :, -1].square().sum()
    gradient = torch.autograd.grad(score, [weights])[0]
    positions = weights.shape[-1]
    cam = (gradient * weights.detach()).reshape(-1, positions, positions).clamp(0).mean(0)
    relevances = torch.eye(positions)
    relevances = relevances + cam @ relevances
    return relevances[rows]


def attending(positions: int) -> tuple[Callable[..., tuple[Tensor, Tensor]], Tensor]:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, positions, 8)
    query.requires_grad_()
    return lambda values: heedmap.attention(query, key, values), value


def test_p10_relevance() -> None:
    attend, value = attending(SMALL)

    def eager(values: Tensor) -> tuple[Tensor, Tensor]:
        weights = attend(values)[1].to_dense()
        return weights @ values, weights

    found = relevance(attend, value, slice(None))
    expected = relevance(eager, value, slice(None))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_p10_relevance_lazily() -> None:
    attend, value = attending(LARGE)
    with heedmap.dense_budget(0):
        found = relevance(attend, value, slice(-1, None)).to_dense(max_bytes=LARGE * 4)
    assert torch.isfinite(found).all()
    assert found.shape == (1, LARGE)
