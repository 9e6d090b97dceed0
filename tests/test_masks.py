"""Masks of other conventions come in through converters that say which polarity they take."""

import math
from typing import Any

import pytest
import torch
from torch import nn

import heedmap
from heedmap import Causal, Padding, Visible, Window
from heedmap.errors import ArgumentError, DTypeError, ShapeError


def test_lengths_and_key_padding_masks_say_the_same() -> None:
    valid = torch.tensor([[True, True, True], [True, False, False]])
    assert torch.equal(Padding.from_lengths(torch.tensor([3, 1]), keys=3).valid, valid)
    assert torch.equal(Padding.from_key_padding_mask(~valid).valid, valid)


def test_an_attn_mask_of_every_sample_and_head_is_that_of_multihead_attention() -> None:
    torch.manual_seed(0)
    batch, heads, length = 2, 2, 5
    ignored = torch.rand(batch * heads, length, length) > 0.6
    ignored[:, range(length), range(length)] = False
    theirs = nn.MultiheadAttention(8, heads, batch_first=True).eval()
    x = torch.randn(batch, length, 8)
    expected = theirs(x, x, x, attn_mask=ignored, average_attn_weights=False)[1]
    query, key, _ = nn.functional.linear(x, theirs.in_proj_weight, theirs.in_proj_bias).chunk(3, -1)
    weights = heedmap.AttentionMap.from_factors(
        *(part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query, key)),
        mask=Visible.from_attn_mask(ignored, heads),
    )
    torch.testing.assert_close(weights.to_dense(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.bad_input
def test_what_no_converter_takes() -> None:
    with pytest.raises(
        ArgumentError, match=r"lengths must be \[batch\], each from 0 to 3; got \[4\]"
    ):
        Padding.from_lengths(torch.tensor([4]), keys=3)
    with pytest.raises(DTypeError, match=r"lengths must be whole numbers; got torch\.float32"):
        Padding.from_lengths(torch.tensor([2.5]), keys=3)
    for make in (
        lambda: Padding.from_lengths([2], keys=3),  # pyright: ignore[reportArgumentType]
        lambda: Padding.from_key_padding_mask([[True]]),  # pyright: ignore[reportArgumentType]
        lambda: Visible.from_attn_mask([[True]], 1),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(DTypeError, match=r"must be a torch\.Tensor; got list"):
            make()
    with pytest.raises(ShapeError, match="with 0 heads"):
        Visible.from_attn_mask(torch.ones(2, 4, 4).bool(), 0)
    with pytest.raises(DTypeError, match="bool"):
        Padding.from_key_padding_mask(torch.zeros(1, 3))
    with pytest.raises(DTypeError, match="bool"):
        Visible.from_attn_mask(torch.zeros(3, 3), heads=1)
    with pytest.raises(ShapeError, match="batch \\* heads"):
        Visible.from_attn_mask(torch.zeros(3, 2, 2).bool(), heads=2)


@pytest.mark.bad_input
@pytest.mark.parametrize("bound", [1.5, math.nan, True, "1", 2**70, -1])
def test_bounds_are_whole_numbers_of_keys(bound: Any) -> None:
    for given in ({"before": bound}, {"after": bound}):
        with pytest.raises(ArgumentError, match="must be a whole number of keys from 0 on, or No"):
            Window(**given)


@pytest.mark.bad_input
@pytest.mark.parametrize("alignment", [True, 0.5, 2**70])
def test_alignments_that_say_nothing(alignment: Any) -> None:
    for kind in (Causal, Window):
        with pytest.raises(ArgumentError, match="alignment must be 'start', 'end' or the number"):
            kind(alignment)
