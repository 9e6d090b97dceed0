"""Derivatives of derivatives, compiled code, vmap, and the memory that is held."""

import gc
import math
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, jvp, vmap

import heedmap
from heedmap import AttentionMap, Causal, Padding
from heedmap.errors import ModelError, UnsupportedError
from heedmap.nn import SelfAttention

from ..derivatives import require_first_derivatives, require_second_derivatives
from ..watch.dense import require_close
from .common import HEADS, draw, heads_of, plain_layer, watched

# The compiler cannot follow the run-time checks of types, so these run with those of bad input.
compiled_code = pytest.mark.bad_input
noisy = pytest.mark.filterwarnings(
    "ignore:Dynamo does not know how to trace", "ignore:The .grad attribute"
)

VALID = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
DEAD = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0]])


class Causally(nn.Module):
    """A model that attends by PyTorch's function, and keeps what it computed on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8).double()
        self.held: weakref.ref[Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        projected = self.project(x)
        self.held = weakref.ref(projected)
        query = heads_of(projected)
        found = F.scaled_dot_product_attention(query, query, query, is_causal=True)
        return found.transpose(1, 2).flatten(2)


def test_h26_a_watched_model_leaves_no_graph_behind() -> None:
    model, x = Causally(), draw(2, 4, 8, dtype=torch.float64)
    with heedmap.watch(model) as seen:
        output = model(x)
    weights = seen[0]
    assert not weights.requires_grad
    del output
    gc.collect()
    assert model.held is not None
    assert model.held() is None, "what the model computed is gone, though its weights are kept"
    require_close(weights.sum(-1), torch.ones(2, HEADS, 4))


def test_h26_a_map_holds_neither_the_values_nor_a_graph_that_nobody_asked_for() -> None:
    query, key, value = (draw(1, 2, 5, 4, seed=seed).requires_grad_() for seed in range(3))
    doubled = value * 2
    held = weakref.ref(doubled)
    with torch.no_grad():
        weights = heedmap.attention(query, key, doubled)[1]
        answer = plain_layer(8)(draw(1, 5, 8))[1]
    del doubled
    gc.collect()
    assert held() is None
    assert not weights.requires_grad
    assert not answer.requires_grad
    assert not heedmap.attention(query, key, value)[1].detach().requires_grad


LAYER = plain_layer(8, torch.float64)
CAUSAL_LAYER = plain_layer(8, torch.float64, causal=True)

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "output": lambda x: heedmap.attention(*[heads_of(x)] * 3, mask=Padding(VALID) & Causal())[0],
    "rows": lambda x: of_map(x)[:, :, 1].to_dense(),
    "entropy": lambda x: of_map(x).entropy(),
    "received": lambda x: of_map(x).received(),
    "top": lambda x: of_map(x).topk(2).values,
    "module": lambda x: CAUSAL_LAYER(x, VALID)[0],
    "weights of the module": lambda x: LAYER(x, VALID)[1].to_dense(),
    "watched": lambda x: of_watched(x).to_dense(),
    "watched, added up": lambda x: of_watched(x).entropy(),
}


def of_map(x: Tensor) -> AttentionMap:
    return AttentionMap.from_factors(heads_of(x), heads_of(x), mask=Padding(VALID) & Causal())


def of_watched(x: Tensor) -> AttentionMap:
    torch.manual_seed(0)
    model = Causally()
    with heedmap.watch(model, grad=True) as seen:
        model(x)
    return seen[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_h27_second_derivatives(name: str) -> None:
    x = draw(2, 4, 8, dtype=torch.float64).requires_grad_()
    function = FUNCTIONS[name]

    def part(piece: Tensor) -> Tensor:
        # A part of x is enough, and quick.
        return function(torch.cat([piece, x[:, 1:].detach()], 1))

    piece = x[:, :1].detach().requires_grad_()
    require_first_derivatives(part, (piece,))
    require_second_derivatives(part, (piece,))


def dense_weights(x: Tensor) -> Tensor:
    query = heads_of(x)
    visible = VALID.bool()[:, None, None] & torch.ones(4, 4).tril().bool()
    scores = (query @ query.mT / math.sqrt(4)).masked_fill(~visible, -torch.inf)
    return torch.softmax(scores, -1).nan_to_num(0)


DENSE: dict[str, Callable[[Tensor], Tensor]] = {
    "output": lambda x: dense_weights(x) @ heads_of(x),
    "rows": lambda x: dense_weights(x)[:, :, 1],
    "entropy": lambda x: torch.special.entr(dense_weights(x)).sum(-1),
    "received": lambda x: dense_weights(x).sum(-2),
    "top": lambda x: dense_weights(x).topk(2).values,
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("name", DENSE)
def test_h27_forward_derivatives(name: str) -> None:
    x, along = draw(2, 4, 8, dtype=torch.float64), draw(2, 4, 8, seed=1, dtype=torch.float64)
    _, found = jvp(FUNCTIONS[name], (x,), (along,))
    step = 1e-6
    around = (DENSE[name](x + step * along) - DENSE[name](x - step * along)) / (2 * step)
    require_close(found, around, 1e-8)


@pytest.mark.parametrize("name", ["output", "rows", "entropy", "received", "top", "module"])
def test_h27_gradients_by_torch_func(name: str) -> None:
    x = draw(2, 4, 8, dtype=torch.float64)
    found = grad(lambda x: FUNCTIONS[name](x).square().sum())(x)
    leaf = x.clone().requires_grad_()
    FUNCTIONS[name](leaf).square().sum().backward()
    assert leaf.grad is not None
    require_close(found, leaf.grad, 1e-12)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("backend", ["auto", "tiles", "reference"])
def test_h27_a_gradient_that_shall_be_derived_again_is_the_same(shared: bool, backend: str) -> None:
    x = draw(2, HEADS, 4, 4, dtype=torch.float64).requires_grad_()
    key = x if shared else draw(2, HEADS, 4, 4, seed=1, dtype=torch.float64).requires_grad_()
    output, weights = heedmap.attention(x, key, key, mask=Padding(VALID), backend=backend)
    answers = [output, weights.log_normalizer, weights.entropy(), weights.received()]
    answers += [weights.topk(2).values, weights.pool(2, 2), weights @ key, weights[:, 0].mean(1)]
    for answer in answers:
        loss = answer.clone().square().sum()
        once = torch.autograd.grad(loss, [x, key], retain_graph=True)
        again = torch.autograd.grad(loss, [x, key], create_graph=True)
        for one, other in zip(once, again, strict=True):
            require_close(other, one, 1e-10)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["output", "entropy"])
def test_h27_all_rows_of_a_jacobian_at_once_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="by vmap"):
        jacrev(FUNCTIONS[name])(draw(2, 4, 8, dtype=torch.float64))


READ: dict[str, Callable[[AttentionMap], Tensor]] = {
    "cells": AttentionMap.to_dense,
    "row": lambda weights: weights[..., 1, :].to_dense(),
    "sum": lambda weights: weights.sum(-2),
    "entropy": AttentionMap.entropy,
    "top": lambda weights: weights.topk(2).values,
    "scaled": lambda weights: (weights * 2).to_dense(),
}


def attend(x: Tensor) -> tuple[Tensor, AttentionMap]:
    return heedmap.attention(*[heads_of(x * 1)] * 3, mask=Padding(DEAD) & Causal())


class Layer(nn.Module):
    """A layer among others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attend = SelfAttention(8, 8, num_heads=2, causal=True)

    def forward(self, x: Tensor) -> tuple[Tensor, AttentionMap]:
        return self.attend(x * 1, DEAD)


@compiled_code
@noisy
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("way", ["attention", "SelfAttention"])
def test_h33_compiled_code_gives_the_same(way: str, dynamic: bool, backend: str) -> None:
    function = attend if way == "attention" else Layer()

    def whole(x: Tensor) -> list[Tensor]:
        output, weights = function(x)
        return [output + 1, *(read(weights) * 2 for read in READ.values())]

    torch._dynamo.reset()
    compiled = torch.compile(whole, backend=backend, dynamic=dynamic)
    for seed in range(2):
        x = draw(2, 4, 8, seed=seed)
        for found, expected in zip(compiled(x), whole(x), strict=True):
            assert torch.equal(found, expected)
    torch._dynamo.reset()


@compiled_code
@noisy
def test_h33_gradients_of_compiled_code() -> None:
    leaves = [draw(2, 4, 8).requires_grad_() for _ in range(2)]
    torch._dynamo.reset()

    def loss(x: Tensor) -> Tensor:
        output, weights = attend(x)
        return output.square().sum() + weights.entropy().sum()

    torch.compile(loss, backend="aot_eager")(leaves[0]).backward()
    loss(leaves[1]).backward()
    assert leaves[0].grad is not None
    assert leaves[1].grad is not None
    assert torch.equal(leaves[0].grad, leaves[1].grad)
    torch._dynamo.reset()


@compiled_code
def test_h33_one_whole_graph_is_refused_by_the_compiler() -> None:
    torch._dynamo.reset()
    x = heads_of(draw(2, 4, 8))
    compiled = torch.compile(lambda x: heedmap.attention(x, x, x), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="disable"):
        compiled(x)
    torch._dynamo.reset()


def test_h33_a_compiled_model_is_watched_as_it_is_written() -> None:
    model, x = Causally(), draw(2, 4, 8, dtype=torch.float64)
    torch._dynamo.reset()
    _, layer = watched(model, x)
    compiled = torch.compile(model, backend="eager")
    with heedmap.watch(compiled) as seen:
        compiled(x)
    require_close(seen[0], layer.weights.to_dense())
    torch._dynamo.reset()


@pytest.mark.bad_input
@pytest.mark.parametrize("transform", [lambda f: vmap(f), lambda f: vmap(grad(f))])
def test_h34_vmap_is_refused_with_what_to_do(
    transform: Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]],
) -> None:
    layer, other = plain_layer(8), draw(2, 4, 8)
    for function in (
        lambda x: heedmap.attention(x, x, x)[0].sum(),
        lambda x: AttentionMap.from_factors(x, x).entropy().sum(),
        lambda x: layer(x)[0].sum(),
        lambda x: heedmap.attention(other, other, x)[0].sum(),
        lambda x: heedmap.attention(other, other, other, bias=x[..., :4])[0].sum(),
    ):
        with pytest.raises(UnsupportedError, match=r"by vmap\. Give the whole batch"):
            transform(function)(draw(3, 2, 4, 8))


def test_h34_the_whole_batch_gives_what_vmap_would() -> None:
    x = draw(3, 4, 8)
    whole = heedmap.attention(x, x, x)[0]
    require_close(whole, torch.stack([heedmap.attention(s, s, s)[0] for s in x]))
    layer = SelfAttention(8, 8)
    parameters = dict(layer.named_parameters())
    gradients = [
        grad(lambda p, s=s: functional_call(layer, p, (s[None],))[0].square().sum())(parameters)
        for s in x
    ]
    whole_loss = layer(x)[0].square().sum()
    totals = torch.autograd.grad(whole_loss, list(parameters.values()))
    for name, total in zip(parameters, totals, strict=True):
        require_close(sum((g[name] for g in gradients), torch.zeros(())), total, 1e-4)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_h34_a_watched_model_under_vmap_computes_as_ever_and_is_named() -> None:
    model, x = Causally(), draw(3, 2, 4, 8, dtype=torch.float64)
    alone = vmap(model)(x)
    found = []

    def run() -> None:
        with heedmap.watch(model):
            found.append(vmap(model)(x))

    with pytest.raises(ModelError, match=r"no attention was captured .*by vmap"):
        run()
    assert torch.equal(found[0], alone)
