"""The gradient with respect to the weights of a model that is watched with its graph."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedmap
from heedmap import AttentionMap
from heedmap.errors import UnsupportedError
from tests.watch.models import KINDS, Kind
from tests.watch.styles import STYLES, Style

MODELS = [
    (name, implementation)
    for name in ("bert", "gpt-2", "llama", "t5", "soft-cap", "sinks", "bart", "sliding window")
    for implementation in KINDS[name].implementations
    if implementation != "flex_attention"
]


def score_of(output: Tensor) -> Tensor:
    numbers = torch.Generator().manual_seed(4)
    return (output * torch.randn(output.shape, generator=numbers).to(output.dtype)).sum()


def require_equal(found: Any, expected: Tensor, weights: Tensor) -> None:
    """Compare where anything is visible."""
    assert isinstance(found, AttentionMap)
    visible = weights.detach().clone() > 0
    torch.testing.assert_close(
        found.clone()[visible],
        expected.detach()[visible],
        atol=1e-5 * float(expected.detach().abs().max()),
        rtol=1e-4,
    )


def score_of_model(kind: Kind, output: Any) -> Tensor:
    """Return a score of what real positions came to; for padded ones each kernel has its own."""
    hidden = output.last_hidden_state
    real = kind.inputs.get("attention_mask")
    if real is not None and real.shape == hidden.shape[:2]:
        hidden = hidden * real[..., None]
    return score_of(hidden)


@pytest.mark.parametrize(("name", "implementation"), MODELS)
def test_of_transformers_equals_that_of_the_slow_path(name: str, implementation: str) -> None:
    kind = KINDS[name]
    slow = kind.make("eager")(**kind.inputs, output_attentions=True)
    stored = kind.weights(slow)
    expected = torch.autograd.grad(score_of_model(kind, slow), stored)
    model = kind.make(implementation)
    with heedmap.watch(model, grad=True) as seen:
        output = model(**kind.inputs)
        score = score_of_model(kind, output)
        found = torch.autograd.grad(score, list(seen), retain_graph=True)
        for weights in seen:
            weights.retain_grad()
        score.backward()
    for at, weights in enumerate(seen):
        require_equal(found[at], expected[at], weights)
        require_equal(weights.grad, expected[at], weights)


def test_of_maps_that_a_model_puts_out() -> None:
    kind = KINDS["bert"]
    model = kind.make("sdpa")
    with heedmap.watch(model, grad=True) as seen:
        output = model(**kind.inputs, output_attentions=True)
    asked = [*output.attentions, *seen]
    found = torch.autograd.grad(score_of(output.last_hidden_state), asked)
    for one, other in zip(found[:2], found[2:], strict=True):
        assert torch.equal(one, other)


class Attends(nn.Module):
    """Attention over three projections of a sequence by a function of them."""

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor], heads: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attend, self.heads = attend, heads
        self.project = nn.Linear(8, 3 * 8 * heads)

    def split(self, x: Tensor) -> list[Tensor]:
        parts = self.project(x).unflatten(-1, (3, self.heads, 8)).unbind(-3)
        return [part.transpose(1, 2) for part in parts]

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(*self.split(x))


X = torch.linspace(-3, 3, 2 * 6 * 8).sin().reshape(2, 6, 8)


@pytest.mark.parametrize(
    "style", [s for s in STYLES.values() if s.kept == "factors"], ids=lambda s: s.attend.__name__
)
def test_of_code_written_by_hand(style: Style) -> None:
    model = Attends(style.attend)
    with heedmap.watch(model, grad=True) as seen:
        output = model(X)
    (found,) = torch.autograd.grad(score_of(output), [seen[0]], retain_graph=True)
    # Whatever the code is, the output is a product of weights and values.
    value = model.split(X)[2]
    d_output = torch.autograd.grad(score_of(output), [output])[0]
    expected = d_output.reshape(2, 4, 6, 8) @ value.mT
    require_equal(found.reshape(2, 4, 6, 6), expected, seen[0].reshape(2, 4, 6, 6))


def doubled_in_place(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    output = (query @ key.mT).softmax(-1) @ value
    output *= 2
    return output


def test_what_is_done_to_the_output_in_place_is_part_of_the_loss() -> None:
    model = Attends(doubled_in_place)
    with heedmap.watch(model, grad=True) as seen:
        output = model(X)
    seen[0].retain_grad()
    output.sum().backward(retain_graph=True)
    expected = 2 * torch.ones(2, 4, 6, 8) @ model.split(X)[2].mT
    require_equal(seen[0].grad, expected, seen[0])
    (found,) = torch.autograd.grad(output.sum(), [seen[0]])
    require_equal(found, expected, seen[0])


def test_of_some_heads_and_queries() -> None:
    model = Attends(F.scaled_dot_product_attention)
    with heedmap.watch(model, grad=True) as whole:
        output = model(X)
    (of_all,) = torch.autograd.grad(score_of(output), [whole[0]])
    with heedmap.watch(model, grad=True, heads=[3, 0], queries=[-1, 2]) as some:
        output = model(X)
    (found,) = torch.autograd.grad(score_of(output), [some[0]])
    expected = of_all.clone()[:, [3, 0]][:, :, [5, 2]]
    torch.testing.assert_close(found.clone(), expected)


def plain_multi_head(module: nn.MultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return output and weights of self-attention ``[batch, positions, features]``."""
    given = F.linear(x, module.in_proj_weight, module.in_proj_bias)
    query, key, value = (
        part.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for part in given.chunk(3, -1)
    )
    if module.bias_k is not None and module.bias_v is not None:
        rows = [row.reshape(1, module.num_heads, 1, -1) for row in (module.bias_k, module.bias_v)]
        key, value = (
            torch.cat([part, row.expand(len(x), -1, -1, -1)], 2)
            for part, row in zip((key, value), rows, strict=True)
        )
    if module.add_zero_attn:
        key, value = F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1))
    weights = (query @ key.mT / math.sqrt(module.head_dim)).softmax(-1)
    return module.out_proj((weights @ value).transpose(1, 2).flatten(2)), weights


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}, {"batch_first": False}],
    ids=str,
)
@pytest.mark.parametrize("batched", [True, False])
def test_of_multi_head_attention(
    options: dict[str, Any], need_weights: bool, batched: bool
) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, **({"batch_first": True} | options)).eval()
    turned = batched and not module.batch_first
    x = X if batched else X[0]
    given = x.transpose(0, 1) if turned else x
    with heedmap.watch(module, grad=True) as seen:
        output = module(given, given, given, need_weights=need_weights)[0]
    output = output.transpose(0, 1) if turned else output
    (found,) = torch.autograd.grad(score_of(output), [seen[0]])
    expected, weights = plain_multi_head(module, X if batched else X[:1])
    slope = torch.autograd.grad(score_of(expected.reshape(output.shape)), [weights])[0]
    require_equal(found.reshape(slope.shape), slope, weights)


def test_of_a_layer_in_training_without_dropout() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True)
    with heedmap.watch(layer, grad=True) as seen:
        output = layer(X)
    seen["self_attn"].retain_grad()
    score_of(output).backward()
    normed, weights = plain_multi_head(layer.self_attn, X)
    normed = layer.norm1(X + normed)
    expected = layer.norm2(normed + layer.linear2(F.relu(layer.linear1(normed))))
    slope = torch.autograd.grad(score_of(expected), [weights])[0]
    require_equal(seen["self_attn"].grad, slope, weights)


DROPS: dict[str, nn.Module] = {
    "sdpa": Attends(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)),
    "by hand": Attends(lambda q, k, v: F.dropout((q @ k.mT).softmax(-1), 0.5) @ v),
    "layer": nn.TransformerEncoderLayer(8, 2, dropout=0.5, batch_first=True),
}


@pytest.mark.parametrize("model", DROPS.values(), ids=DROPS)
def test_dropout_stands_between(model: nn.Module) -> None:
    with heedmap.watch(model, grad=True) as seen:
        output = model(X)
    assert seen[0].requires_grad
    for ask in (
        lambda: torch.autograd.grad(output.sum(), [seen[0]], retain_graph=True),
        lambda: seen[0].retain_grad(),
        lambda: seen[0].grad,
    ):
        with pytest.raises(UnsupportedError, match="without dropout"):
            ask()


def test_a_watch_without_its_graph_says_so() -> None:
    model = Attends(F.scaled_dot_product_attention)
    with heedmap.watch(model) as seen:
        output = model(X)
    for ask in (
        lambda: torch.autograd.grad(output.sum(), [seen[0]], retain_graph=True, allow_unused=True),
        lambda: seen[0].retain_grad(),
        lambda: seen[0].register_hook(lambda _: None),
    ):
        with pytest.raises(UnsupportedError, match=r"heedmap\.watch\(grad=True\)"):
            ask()


def test_weights_that_factors_do_not_give() -> None:
    """A softmax of something else than a product: its own tensor has the gradient."""
    model = Attends(lambda q, k, v: (q @ k.mT).sin().softmax(-1) @ v)
    with heedmap.watch(model, grad=True) as seen:
        output = model(X)
    assert seen.layers[0].kept == "weights"
    with pytest.raises(UnsupportedError, match="must be asked of a whole map"):
        torch.autograd.grad(output.sum(), [seen[0]])


def test_a_loss_on_the_weights_reaches_what_is_learnt_of_distances() -> None:
    kind = KINDS["t5"]
    expected = kind.make("eager")
    slow = expected(**kind.inputs, output_attentions=True).encoder_attentions[1]
    (slow.square().sum(-1)).sum().backward()
    for implementation in kind.implementations:
        model = kind.make(implementation)
        with heedmap.watch(model, grad=True) as seen:
            model(**kind.inputs)
        seen[1].square().sum(-1).sum().backward()
        for name, parameter in expected.encoder.named_parameters():
            found = dict(model.encoder.named_parameters())[name].grad
            assert (found is None) == (parameter.grad is None), name
            if found is not None:
                torch.testing.assert_close(found, parameter.grad, atol=1e-6, rtol=1e-4)
