"""First and second derivatives of everything that is asked, against finite differences."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Mask, Padding, Visible, Window
from heedmap.errors import UnsupportedError
from tests.derivatives import require_first_derivatives, require_second_derivatives

QUERIES, KEYS, HEADS, WIDTH = 3, 4, 2, 2
NOTHING_SEEN = Padding(torch.tensor([[0, 1, 1, 1]])) & Causal("start")
"""Under which the first query sees nothing."""


class Setting(NamedTuple):
    """A problem; `given` names what is derived by beside query, key and value."""

    mask: Mask | None = None
    kv_heads: int = HEADS
    given: tuple[str, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})


SETTINGS = {
    "plain": Setting(),
    "nothing seen": Setting(NOTHING_SEEN),
    "window, one key head": Setting(Window("end", before=1, after=1), kv_heads=1),
    "bias": Setting(NOTHING_SEEN, given=("bias",)),
    "sinks": Setting(NOTHING_SEEN, given=("sinks",)),
    "everything": Setting(
        Visible(torch.tensor([[0, 0, 0, 0], [1, 0, 1, 1], [0, 1, 0, 0]]).bool()),
        kv_heads=1,
        given=("bias", "sinks"),
        options={"soft_cap": 1.5, "scale": -0.7},
    ),
}

QUESTIONS: dict[str, Callable[[Tensor, AttentionMap], Tensor]] = {
    "output": lambda output, _: output,
    "every cell": lambda _, w: w.to_dense(),
    "a tile": lambda _, w: w[:, :, 1:, 1:3].to_dense(),
    "rows": lambda _, w: w[0, 1, [2, 0, 0]].to_dense(),
    "a row": lambda _, w: w[0, 1, 2].clone(),
    "sums of rows": lambda _, w: w.sum(-1),
    "received": lambda _, w: w.received(),
    "entropy": lambda _, w: w.entropy(),
    "top": lambda _, w: w.topk(2).values,
    "largest": lambda _, w: w.amax(-1),
    "picture": lambda _, w: w.pool(2, 2),
    "picture of sums": lambda _, w: w.pool(2, 3, "sum"),
    "log-normaliser": lambda _, w: w.log_normalizer.masked_fill(w.log_normalizer == -torch.inf, 0),
    "diagonal": lambda _, w: w.diagonal(1, -2, -1),
    "product": lambda _, w: w @ torch.linspace(-1, 1, KEYS).double().sin()[:, None],
    "mean over heads": lambda _, w: w.mean(1).square().sum(-2),
    "logarithms": lambda _, w: w.log_weights[0, 0, 2].clone().clamp(min=-50),
}


def leaves(setting: Setting) -> dict[str, Tensor]:
    """Return what is derived by, in float64, by name."""
    numbers = torch.Generator().manual_seed(3)
    shapes = {
        "query": (1, HEADS, QUERIES, WIDTH),
        "key": (1, setting.kv_heads, KEYS, WIDTH),
        "value": (1, setting.kv_heads, KEYS, 1),
        "bias": (1, HEADS, 1, KEYS),
        "sinks": (HEADS,),
    }
    wanted = ("query", "key", "value", *setting.given)
    return {
        name: torch.randn(shapes[name], generator=numbers, dtype=torch.float64, requires_grad=True)
        for name in wanted
    }


def asked(setting: Setting, question: str, backend: str) -> Callable[..., Tensor]:
    names = list(leaves(setting))

    def call(*tensors: Tensor) -> Tensor:
        given = dict(zip(names, tensors, strict=True))
        output, weights = heedmap.attention(
            **given, mask=setting.mask, backend=backend, **setting.options
        )
        return QUESTIONS[question](output, weights)

    return call


def inputs(setting: Setting, question: str) -> tuple[Tensor, ...]:
    """Return the leaves; the value alone does not decide weights, and has no derivative there."""
    given = leaves(setting)
    if question != "output":
        given["value"] = given["value"].detach()
    return tuple(given.values())


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_first_derivatives(question: str, setting: str) -> None:
    chosen = SETTINGS[setting]
    call = asked(chosen, question, "auto")
    require_first_derivatives(call, inputs(chosen, question))


@pytest.mark.parametrize("backend", ["tiles", "reference"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_they_are_the_same_by_every_backend(question: str, setting: str, backend: str) -> None:
    """More closely than finite differences could tell."""
    chosen = SETTINGS[setting]
    given = tuple(leaves(chosen).values())
    found, expected = (
        torch.autograd.functional.jacobian(asked(chosen, question, name), given)
        for name in (backend, "auto")
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_second_derivatives(question: str, setting: str) -> None:
    chosen = SETTINGS[setting]
    call = asked(chosen, question, "auto")
    require_second_derivatives(call, inputs(chosen, question))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("backend", ["auto", "tiles", "reference"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_forward_derivatives(question: str, setting: str, backend: str) -> None:
    """What changes along a direction is that direction times the gradient."""
    chosen = SETTINGS[setting]
    call = asked(chosen, question, backend)
    given = tuple(leaves(chosen).values())
    directions = tuple(torch.linspace(-1, 1, leaf.numel()).double().sin() for leaf in given)
    directions = tuple(d.reshape(leaf.shape) for d, leaf in zip(directions, given, strict=True))
    gradients = torch.autograd.grad(call(*given).square().sum(), given, allow_unused=True)
    expected = sum(
        (gradient * direction).sum()
        for gradient, direction in zip(gradients, directions, strict=True)
        if gradient is not None
    )
    plain = tuple(leaf.detach() for leaf in given)
    _, found = torch.func.jvp(lambda *given: call(*given).square().sum(), plain, directions)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", ["auto", "tiles", "reference"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_pulled_back_later(question: str, setting: str, backend: str) -> None:
    """By torch.func.vjp, whose function is called when the transform is over."""
    chosen = SETTINGS[setting]
    call = asked(chosen, question, backend)
    given = tuple(leaves(chosen).values())
    answer, pull = torch.func.vjp(call, *(leaf.detach() for leaf in given))
    upward = torch.linspace(-1, 1, answer.numel()).double().reshape(answer.shape)
    expected = torch.autograd.grad(call(*given), given, upward, allow_unused=True)
    upward.requires_grad_()
    found = pull(upward)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)
    (back,) = torch.autograd.grad(sum(part.sum() for part in found), upward)
    # What is pulled back is linear in what it is pulled back from.
    torch.testing.assert_close((back * upward).sum(), sum(part.sum() for part in found))


@pytest.mark.bad_input
def test_gradients_in_batches_are_refused() -> None:
    query, key = leaves(SETTINGS["plain"])["query"], torch.randn(1, 2, 4, 2).double()
    output = heedmap.attention(query, key, key)[0]
    upward = torch.ones(2, *output.shape).double()
    with pytest.raises(UnsupportedError, match="gradient must be a whole tensor; got a sample"):
        torch.autograd.grad(output, query, upward, is_grads_batched=True)
