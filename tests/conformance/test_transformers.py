"""heedmap as the attention function of models of transformers, against their own plain code."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask, sdpa_mask

import heedmap
from heedmap import AttentionMap, Causal, Mask, Visible
from tests.watch.models import BATCH, IDS, KINDS, LENGTH, Kind

BOOLEANS, NUMBERS = "heedmap", "heedmap_with_numbers"
"""Our function with a mask of booleans, as scaled_dot_product_attention has, or of numbers."""

MODELS = (
    "bert",
    "gpt-2",
    "llama",
    "sliding window",
    "every other layer slides",
    "soft-cap",
    "sinks",
    "t5",
    "bart",
    "whisper",
    "vit",
)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[Tensor, AttentionMap]:
    """Do what transformers asks an attention function for, by `heedmap.attention`."""
    assert not dropout
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    mask: Mask | None = None
    bias = position_bias
    if attention_mask is None:
        # Without a mask, the flag says that later keys are hidden; one query sees them all.
        mask = Causal(alignment="end") if is_causal and query.shape[2] > 1 else None
    elif attention_mask.dtype == torch.bool:
        mask = Visible(attention_mask)
    else:
        hidden = attention_mask <= torch.finfo(attention_mask.dtype).min
        mask = Visible(~hidden)
        added = attention_mask.masked_fill(hidden, 0)
        bias = added if bias is None else bias + added
    output, weights = heedmap.attention(
        query,
        key,
        value,
        mask=mask,
        scale=scaling,
        soft_cap=softcap,
        bias=None if bias is None else bias.to(query.dtype),
        sinks=s_aux,
    )
    return output.transpose(1, 2).contiguous(), weights


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    for name, mask in ((BOOLEANS, sdpa_mask), (NUMBERS, eager_mask)):
        AttentionInterface.register(name, attend)
        AttentionMaskInterface.register(name, mask)
    yield
    for name in (BOOLEANS, NUMBERS):
        del AttentionInterface._global_mapping[name]
        del AttentionMaskInterface._global_mapping[name]


def require_same(kind: Kind, found: Any, expected: Any) -> None:
    """Compare hidden states and weights of all that sees anything."""
    for ours, theirs in zip(kind.weights(found), kind.weights(expected), strict=True):
        assert isinstance(ours, AttentionMap)
        dense = ours.detach().to_dense()
        blind = kind.blind[:, None].expand(dense.shape[:-1])
        torch.testing.assert_close(dense[~blind], theirs[~blind], atol=1e-6, rtol=1e-5)
        assert bool((dense[blind] == 0).all())
    names = [name for name in found if "hidden_state" in name]
    assert len(names) >= 2
    for name in names:
        ours, theirs = found[name], expected[name]
        for one, other in zip(_listed(ours), _listed(theirs), strict=True):
            sees = ~kind.blind.expand(one.shape[:2])
            torch.testing.assert_close(one[sees], other[sees], atol=1e-5, rtol=1e-5)


def _listed(states: Any) -> tuple[Tensor, ...]:
    return states if isinstance(states, tuple) else (states,)


ASKED = {"output_attentions": True, "output_hidden_states": True}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("implementation", [BOOLEANS, NUMBERS])
def test_hidden_states_and_weights_are_those_of_eager(name: str, implementation: str) -> None:
    kind = KINDS[name]
    with torch.no_grad():
        expected = kind.make("eager")(**kind.inputs, **ASKED)
        found = kind.make(implementation)(**kind.inputs, **ASKED)
    require_same(kind, found, expected)


@pytest.mark.parametrize("name", ["bert", "llama", "soft-cap", "sinks", "t5"])
def test_gradients_are_those_of_eager(name: str) -> None:
    kind = KINDS[name]
    grads = []
    for implementation in ("eager", BOOLEANS):
        model = kind.make(implementation)
        hidden = model(**kind.inputs).last_hidden_state
        sees = ~kind.blind.expand(hidden.shape[:2])
        hidden[sees].sin().sum().backward()
        grads.append({n: p.grad for n, p in model.named_parameters()})
    expected, found = grads
    for parameter, grad in expected.items():
        assert (found[parameter] is None) == (grad is None), parameter
        if grad is not None:
            size = float(grad.abs().max())
            torch.testing.assert_close(
                found[parameter], grad, atol=1e-5 * max(size, 1.0), rtol=1e-4, msg=parameter
            )


@pytest.mark.parametrize("name", ["gpt-2", "llama", "every other layer slides", "sinks"])
def test_decoding_with_a_cache(name: str) -> None:
    kind = KINDS[name]
    mask = kind.inputs["attention_mask"]
    model = kind.make(BOOLEANS)
    with torch.no_grad():
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache, steps = None, []
        for start, stop in ((0, 6), (6, 7), (7, LENGTH)):
            output = model(
                input_ids=IDS[:, start:stop],
                attention_mask=mask[:, :stop],
                position_ids=positions[:, start:stop],
                cache=cache,
                use_cache=True,
            )
            cache = output.cache
            steps.append(output.last_hidden_state)
        expected = kind.make("eager")(**kind.inputs, position_ids=positions).last_hidden_state
    found = torch.cat(steps, 1)
    sees = ~kind.blind.expand(BATCH, LENGTH)
    torch.testing.assert_close(found[sees], expected[sees], atol=1e-5, rtol=1e-5)
