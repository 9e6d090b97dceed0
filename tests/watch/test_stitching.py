"""Steps of a decoding put together: what each of them hides, and what that takes."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedmap
from heedmap.layers import Layer
from heedmap.masks import Visible

STEPS, HEADS, WIDTH = 12, 2, 4


class Decoder(nn.Module):
    """Attention of a new query to all keys so far, under a mask of the caller's."""

    def forward(self, query: Tensor, key: Tensor, visible: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, key, attn_mask=visible)


def decoded(visible: Tensor) -> tuple[Layer, Any, Tensor]:
    """Return the one layer, what is kept of it, and the plain formula in float64.

    Args:
        visible: ``[batch, step, key]``, of which each step is given its own row.
    """
    batch = len(visible)
    torch.manual_seed(0)
    query, key = torch.randn(2, batch, HEADS, STEPS, WIDTH)
    model = Decoder()
    with heedmap.watch(model) as seen:
        # The first call has two positions, so that it is seen to be causal.
        model(query[:, :, :2], key[:, :, :2], visible[:, None, :2, :2])
        for step in range(2, STEPS):
            keys = slice(step + 1)
            row = visible[:, None, step : step + 1, keys]
            model(query[:, :, step : step + 1], key[:, :, keys], row)
    (layer,) = seen.layers
    scores = query.double() @ key.double().mT / WIDTH**0.5
    scores = scores.masked_fill(~visible[:, None], -torch.inf)
    (track,) = seen._ask.__self__.entries
    return layer, track, torch.softmax(scores, -1).nan_to_num()


CAUSAL = torch.ones(2, STEPS, STEPS, dtype=torch.bool).tril()


def padded() -> Tensor:
    visible = CAUSAL.clone()
    visible[1, :, 0] = False
    return visible


def forgetting() -> Tensor:
    visible = padded()
    visible[0, 6:, 3] = False
    return visible


def coming_and_going() -> Tensor:
    visible = CAUSAL.clone()
    visible[:, 5:8, 2] = False
    visible[1, 7, 4] = False
    return visible


@pytest.mark.parametrize("visible", [CAUSAL, padded(), forgetting(), coming_and_going()])
def test_every_step_hides_what_it_hid(visible: Tensor) -> None:
    layer, _, expected = decoded(visible)
    assert (layer.calls, layer.kind) == (STEPS - 1, "causal")
    found = layer.weights.to_dense().double()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_padding_is_said_once_and_not_by_every_step() -> None:
    layer, track, _ = decoded(padded())
    assert [step.carries_on for step in track.steps] == [False] + [True] * (STEPS - 2)
    assert all(step.stretches.valid is None for step in track.steps[1:])
    assert not isinstance(layer.weights._rule.problem.mask, Visible)


def test_a_step_that_hides_what_was_seen_says_so() -> None:
    _, track, _ = decoded(forgetting())
    assert [i for i, step in enumerate(track.steps) if not step.carries_on] == [0, 5]
