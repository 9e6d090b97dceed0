"""Attention that models compute by themselves: a product, a softmax, a product."""

import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import heedmap
from heedmap.errors import ModelError

from .dense import dense_weights, key_of, require_close, watch_once
from .styles import BATCH, HEADS, LENGTH, SCALE, STYLES, WIDTH, Attend, soft_cap, without_heads


class Attention(nn.Module):
    """Attention as a test writes it."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.attend(query, key, value)


def factors() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(BATCH, HEADS, LENGTH, width) for width in (WIDTH, WIDTH, 5)]


MODES = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "with gradients": torch.enable_grad,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("style", STYLES)
def test_every_style(style: str, mode: str) -> None:
    way = STYLES[style]
    with MODES[mode]():
        query, key, value = factors()
        if mode == "with gradients":
            query.requires_grad_()
        layer = watch_once(Attention(way.attend), query, key, value)
    expected = dense_weights(query, key, **way.meaning)
    require_close(layer.weights.reshape(expected.shape), expected)
    assert layer.kept == way.kept
    if way.kept == "factors":
        assert layer.output_error is not None
        assert layer.output_error < 1e-6
        assert layer.weights.shape == expected.shape or style == "channels first"


def test_soft_cap() -> None:
    query, key, value = factors()
    layer = watch_once(Attention(soft_cap), query, key, value)
    capped = torch.tanh(query.double() @ key.double().mT * SCALE / 0.5) * 0.5
    require_close(layer.weights, capped.softmax(-1))
    assert layer.kept == "factors"


def test_one_matrix() -> None:
    query, key, value = factors()
    layer = watch_once(Attention(without_heads), query, key, value)
    require_close(layer.weights, dense_weights(query[0, 0], key[0, 0]))
    assert layer.kept == "factors"


def test_keys_that_all_heads_share_are_kept_once() -> None:
    query, key, value = factors()
    layer = watch_once(
        Attention(lambda q, k, v: (q @ k.mT * SCALE).softmax(-1) @ v),
        *(query, key[:, :1], value[:, :1]),
    )
    require_close(layer.weights, dense_weights(query, key[:, :1]))
    assert key_of(layer.weights).shape[1] == 1
    assert layer.output_error is not None
    assert layer.output_error < 1e-6


def test_heads_in_groups() -> None:
    query, key, value = factors()
    grouped = query.view(BATCH, 2, 2, LENGTH, WIDTH)
    few = key[:, :2, None]
    layer = watch_once(
        Attention(lambda q, k, v: (q @ k.mT * SCALE).softmax(-1) @ v),
        *(grouped, few, value[:, :2, None]),
    )
    require_close(layer.weights, dense_weights(grouped, few))
    assert layer.kept == "factors"


def test_queries_that_are_learned_once_for_all_samples() -> None:
    query, key, value = factors()
    layer = watch_once(
        Attention(lambda q, k, v: (q @ k.mT * SCALE).softmax(-1) @ v), query[:1], key, value
    )
    require_close(layer.weights, dense_weights(query[:1], key))
    assert layer.kept == "factors"


def test_weights_that_gather_for_several_samples() -> None:
    query, key, value = factors()
    layer = watch_once(
        Attention(lambda q, k, v: (q @ k.mT * SCALE).softmax(-1) @ v), query[:1], key[:1], value
    )
    require_close(layer.weights, dense_weights(query[:1], key[:1]))


@pytest.mark.parametrize("in_place", [False, True])
def test_weights_before_dropout(in_place: bool) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.dropout((q @ k.mT * SCALE).softmax(-1), 0.5, inplace=in_place) @ v

    query, key, value = factors()
    torch.manual_seed(3)
    alone = attend(query, key, value)
    torch.manual_seed(3)
    model = Attention(attend)
    with heedmap.watch(model) as seen:
        watched = model(query, key, value)
    assert torch.equal(alone, watched)
    require_close(seen[0], dense_weights(query, key))
    assert seen.layer(0).kept == "factors"
    assert seen.layer(0).output_error is None


@pytest.mark.bad_input
def test_weights_that_dropout_has_overwritten_are_named_as_missed() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.mT).clamp(max=100.0).softmax(-1)
        return F.dropout(weights, 0.5, inplace=True) @ (weights @ v)

    model = Attention(attend)
    with pytest.raises(ModelError, match="dropped in place"), heedmap.watch(model):
        model(*factors())


def test_sinks() -> None:
    sinks = torch.linspace(-1, 1, HEADS)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * SCALE
        column = sinks.view(1, -1, 1, 1).expand(BATCH, HEADS, LENGTH, 1)
        joined = torch.cat([scores, column], dim=-1)
        joined = joined - joined.max(dim=-1, keepdim=True).values
        return joined.softmax(-1)[..., :-1] @ v

    query, key, value = factors()
    layer = watch_once(Attention(attend), query, key, value)
    scores = query.double() @ key.double().mT * SCALE
    column = sinks.double().view(1, -1, 1, 1).expand(BATCH, HEADS, LENGTH, 1)
    require_close(layer.weights, torch.cat([scores, column], -1).softmax(-1)[..., :-1])
    assert layer.kept == "factors"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_known_by_its_factors(dtype: torch.dtype) -> None:
    query, key, value = (part.to(dtype) for part in factors())
    layer = watch_once(Attention(STYLES["named functions"].attend), query, key, value)
    require_close(layer.weights, dense_weights(query, key), torch.finfo(dtype).eps)
    assert layer.kept == "factors"


def test_autocast_decides_what_the_factors_are() -> None:
    query, key, value = factors()
    with torch.autocast("cpu", torch.bfloat16):
        layer = watch_once(Attention(STYLES["modules"].attend), query, key, value)
    require_close(layer.weights, dense_weights(query.bfloat16(), key.bfloat16()), 1e-2)
    assert layer.kept == "factors"


class Stack(nn.Module):
    """Layers that each compute weights, which are gone before the next one runs."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention(attend) for _ in range(4))
        self.outlived = 0

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        made: list[Any] = []
        for layer in self.layers:
            self.outlived += sum(reference() is not None for reference in made)
            with Made(made):
                value = layer(query, key, value)
        return value


class Made(TorchFunctionMode):
    """Notes every tensor of query × key that a function returns, without holding it."""

    def __init__(self, made: list[Any]) -> None:
        super().__init__()
        self.made = made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.numel() == BATCH * HEADS * LENGTH * LENGTH:
            self.made.append(weakref.ref(result))
        return result


@pytest.mark.parametrize("style", ["timm", "named functions", "masked_fill", "baddbmm"])
def test_no_weights_outlive_their_layer(style: str) -> None:
    model = Stack(STYLES[style].attend)
    query, key, _ = factors()
    with torch.no_grad(), heedmap.watch(model) as seen:
        model(query, key, query)
    assert model.outlived == 0
    assert [layer.kept for layer in seen.layers] == ["factors"] * 4


class InPlace(nn.Module):
    """Hides what lies behind the end of each sample, by writes into views of the scores."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, ends: list[int]) -> Tensor:
        scores = query @ key.mT / 8**0.5
        for sample, end in zip(scores, ends, strict=True):
            sample[..., end:] = -torch.inf
        return scores.softmax(-1) @ value


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_write_into_a_view_of_one_sample(mode: Any) -> None:
    query, key, value = torch.randn(3, 16, 4, 6, 8)
    ends = [6] * 3 + [4] + [6] * 12
    visible = torch.arange(6) < torch.tensor(ends)[:, None, None, None]
    with mode(), heedmap.watch(model := InPlace()) as seen:
        model(query, key, value, ends)
    require_close(seen[0], dense_weights(query, key, visible=visible))


class RelativeValues(nn.Module):
    """Gathers values, and what distances are worth as values, by the same weights."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, distances: Tensor) -> Tensor:
        weights = (query @ key.mT / 8**0.5).softmax(-1)
        return weights @ value + weights @ distances


def test_weights_that_gather_twice_are_one_call() -> None:
    query, key, value, distances = torch.randn(4, 2, 4, 6, 8)
    with heedmap.watch(model := RelativeValues()) as seen:
        model(query, key, value, distances)
    (weights,) = seen
    require_close(weights, dense_weights(query, key))
