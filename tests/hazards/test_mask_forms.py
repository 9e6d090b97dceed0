"""Masks in the forms in which people have them: one meaning each, or a clear refusal."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedmap
from heedmap import AttentionMap, Causal, Documents, Mask, Padding, Visible, Window
from heedmap.errors import ArgumentError, DTypeError, ShapeError

from ..watch.dense import dense_weights, require_close
from .common import HEADS, WAYS, Way, draw, heads_of, plain_layer, watched

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

LENGTHS = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


def factors(queries: int = 4, keys: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    return (
        draw(2, HEADS, queries, 4, seed=1),
        draw(2, HEADS, keys, 4, seed=2),
        draw(2, HEADS, keys, 6, seed=3),
    )


class Direct(nn.Module):
    """A model that hands its arguments to PyTorch's function."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, **self.options)


class MultiHead(nn.Module):
    """PyTorch's module, called with a mask of its own kind."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attend, self.options = nn.MultiheadAttention(8, HEADS, batch_first=True), options

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.attend(x, x, x, average_attn_weights=False, **self.options)


def test_h07_true_is_visible_and_the_other_polarity_has_converters() -> None:
    query, key, value = factors()
    valid = LENGTHS.bool()
    table = torch.ones(4, 4, dtype=torch.bool).tril()
    expected = dense_weights(query, key, visible=valid[:, None, None] & table)
    for mask in (
        Padding(valid) & Visible(table),
        Padding.from_key_padding_mask(~valid) & Visible.from_attn_mask(~table, HEADS),
    ):
        require_close(heedmap.attention(query, key, value, mask=mask)[1], expected)
    for way in WAYS.values():
        x = draw(2, 4, 8)
        assert bool((way(x, x, valid).weights.to_dense()[1, ..., 2:] == 0).all())


def test_h07_watched_functions_of_both_polarities() -> None:
    valid = LENGTHS.bool()
    _, shows = watched(Direct(attn_mask=valid[:, None, None]), *factors())
    (_, theirs), hides = watched(MultiHead(key_padding_mask=~valid), draw(2, 4, 8))
    for layer in (shows, hides):
        assert bool((layer.weights.to_dense()[1, ..., 2:] == 0).all())
        assert bool((layer.weights.to_dense()[1, ..., :2] > 0).all())
    require_close(hides.weights, theirs)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_h08_a_padding_mask_of_any_type_is_no_score(dtype: torch.dtype) -> None:
    x = draw(2, 4, 8)
    expected = WAYS["attention"](x, x, LENGTHS).weights.to_dense()
    for way in (WAYS["attention"], WAYS["SelfAttention"]):
        require_close(way(x, x, LENGTHS.to(dtype)).weights, expected)


AMBIGUOUS: dict[str, tuple[Callable[..., object], type[Exception], str]] = {
    "numbers as a mask": (
        lambda q, k, v: heedmap.attention(q, k, v, mask=torch.ones(4, 4)),
        DTypeError,
        "bias= for scores to add",
    ),
    "whole numbers as a mask": (
        lambda q, k, v: heedmap.attention(q, k, v, mask=torch.ones(4, 4).long()),
        DTypeError,
        "Padding",
    ),
    "truth as a bias": (
        lambda q, k, v: heedmap.attention(q, k, v, bias=torch.ones(4, 4).bool()),
        DTypeError,
        r"bias must be floating-point scores to add; got torch\.bool",
    ),
    "padding of scores": (lambda *_: Padding(LENGTHS * -1e4), ArgumentError, "only 0 .* and 1"),
    "padding of NaN": (lambda *_: Padding(LENGTHS * math.nan), ArgumentError, "only 0 .* and 1"),
    "module, scores": (
        lambda *_: plain_layer(8)(draw(2, 4, 8), LENGTHS * -1e4),
        ArgumentError,
        "only 0 .* and 1",
    ),
    "converter, numbers": (
        lambda *_: Padding.from_key_padding_mask(LENGTHS.float()),
        DTypeError,
        "bool",
    ),
    "converter of tables, numbers": (
        lambda *_: Visible.from_attn_mask(torch.zeros(4, 4), HEADS),
        DTypeError,
        "bool",
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", AMBIGUOUS)
def test_h08_what_could_mean_two_things_is_refused(case: str) -> None:
    call, error, words = AMBIGUOUS[case]
    with pytest.raises(error, match=words):
        call(*factors())


def test_h08_a_watched_model_that_adds_its_ones_and_zeros() -> None:
    query, key, value = factors()
    marks = LENGTHS[:, None, None].float()
    _, layer = watched(Direct(attn_mask=marks), query, key, value)
    require_close(layer.weights, dense_weights(query, key, bias=marks))
    require_close(heedmap.attention(query, key, value, bias=marks)[1], layer.weights.to_dense())


def table_of_each_head() -> Tensor:
    """Return ``[batch, heads, query, key]``, different everywhere."""
    table = draw(2, HEADS, 4, 4, seed=9) > 0
    table[..., 0] = True
    return table & LENGTHS.bool()[:, None, None]


def test_h09_batch_and_heads_in_one_dimension() -> None:
    query, key, value = factors()
    table = table_of_each_head()
    folded = table.flatten(0, 1)
    expected = dense_weights(query, key, visible=table)
    for mask in (Visible(table), Visible.from_attn_mask(~folded, HEADS)):
        require_close(heedmap.attention(query, key, value, mask=mask)[1], expected)
    per_sample = table[:, 0]
    found = heedmap.attention(query, key, value, mask=Visible(per_sample))[1]
    require_close(found, dense_weights(query, key, visible=per_sample[:, None]))


@pytest.mark.parametrize("need_weights", [True, False])
def test_h09_a_watched_module(need_weights: bool) -> None:
    table = table_of_each_head()
    (_, theirs), layer = watched(MultiHead(attn_mask=~table.flatten(0, 1)), draw(2, 4, 8))
    require_close(layer.weights, theirs)
    assert bool((layer.weights.to_dense()[~table] == 0).all())
    model = MultiHead(attn_mask=~table.flatten(0, 1), need_weights=need_weights)
    require_close(watched(model, draw(2, 4, 8))[1].weights, theirs)


@pytest.mark.bad_input
def test_h09_a_number_of_matrices_that_is_no_multiple_of_the_heads() -> None:
    with pytest.raises(
        ShapeError,
        match=r"ignored must be \[batch \* heads, query, key\] with 2 heads; got \[3, 4, 4\]",
    ):
        Visible.from_attn_mask(torch.zeros(3, 4, 4).bool(), HEADS)


@pytest.mark.bad_input
@pytest.mark.parametrize("batch", [2, 4])
def test_h10_padding_never_spreads_along_the_queries(batch: int) -> None:
    query = draw(batch, HEADS, 4, 4)
    with pytest.raises((ArgumentError, ShapeError), match=r"Padding\(mask\)|table must be"):
        heedmap.attention(query, query, query, mask=torch.ones(batch, 4).bool())
    with pytest.raises(ShapeError, match=r"valid must be \[batch, key\]"):
        heedmap.attention(query, query, query, mask=Padding(torch.ones(4, batch + 1)))
    with pytest.raises(ShapeError, match=r"mask must be \[batch, positions\]"):
        plain_layer(8)(draw(batch, 4, 8), torch.ones(4, 4, 1))


def test_h10_where_batch_and_length_are_equal_each_sample_has_its_own() -> None:
    valid = torch.ones(4, 4).tril().bool()
    x = draw(4, 4, 8)
    for way in WAYS.values():
        weights = way(x, x, valid).weights.to_dense()
        assert torch.equal(weights > 0, valid[:, None, None].expand(4, HEADS, 4, 4))


def test_h10_a_watched_model_that_mixes_them_up_is_shown_as_it_is() -> None:
    query = draw(4, HEADS, 4, 4)
    valid = torch.ones(4, 4).tril().bool()
    _, layer = watched(Direct(attn_mask=valid), query, query, query)
    assert torch.equal(layer.weights.to_dense() > 0, valid.expand(4, HEADS, 4, 4))


@pytest.mark.parametrize(("alignment", "first"), [("start", [1, 0]), ("end", [1, 1]), (-1, [0, 0])])
@pytest.mark.parametrize("backend", ["fused", "tiles", "reference"])
def test_h12_causal_says_at_which_end_it_begins(
    alignment: Any, first: list[int], backend: str
) -> None:
    query, key, value = factors(queries=3, keys=4)
    mask = Causal(alignment)
    weights = heedmap.attention(query, key, value, mask=mask, backend=backend)[1].to_dense()
    assert (weights[0, 0, 0, :2] > 0).int().tolist() == first


@pytest.mark.bad_input
def test_h12_without_saying_so_it_is_refused() -> None:
    for queries, keys in ((1, 4), (4, 1)):
        for mask in (Causal(), Window(before=1)):
            with pytest.raises(ArgumentError, match="alignment='end'"):
                heedmap.attention(*factors(queries, keys), mask=mask)
    with pytest.raises(ArgumentError, match="alignment"):
        plain_layer(8, causal=True)(draw(2, 3, 8), context=draw(2, 4, 8))


@pytest.mark.parametrize("queries", [1, 3, 6])
def test_h12_a_watched_model_is_shown_as_its_kernel_aligns(queries: int) -> None:
    query, key, value = factors(queries=queries)
    _, layer = watched(Direct(is_causal=True), query, key, value)
    table = torch.ones(queries, 4).tril().bool()
    require_close(layer.weights, dense_weights(query, key, visible=table))
    assert layer.output_error is not None
    assert layer.output_error < 1e-6


@ways
def test_h13_mask_and_causal_intersect(way: Way) -> None:
    x = draw(2, 4, 8)
    visible = LENGTHS.bool()[:, None, None] & torch.ones(4, 4).tril().bool()
    expected = dense_weights(heads_of(x), heads_of(x), visible=visible)
    require_close(way(x, x, LENGTHS, causal=True).weights, expected)


def test_h13_a_watched_kernel_that_takes_both() -> None:
    query, key, _ = factors()
    valid = LENGTHS.bool()[:, None, None]
    model = Direct(attn_mask=valid.expand(2, 1, 4, 4), is_causal=True)
    _, layer = watched(model, query, key, key)
    expected = dense_weights(query, key, visible=valid & torch.ones(4, 4).tril().bool())
    require_close(layer.weights, expected)
    assert layer.output_error is not None
    assert layer.output_error < 1e-6


def test_h14_causal_alone_gives_weights() -> None:
    x = draw(2, 4, 8)
    later = torch.ones(4, 4).triu(1).bool()
    output, weights = plain_layer(8, causal=True)(x)
    assert bool((weights.to_dense()[..., later] == 0).all())
    found, same = heedmap.attention(*[heads_of(x)] * 3, mask=Causal())
    require_close(output, found.transpose(1, 2).flatten(2))
    require_close(weights, same.to_dense())


@pytest.mark.parametrize("need_weights", [True, False])
def test_h14_the_hint_of_a_watched_module(need_weights: bool) -> None:
    later = torch.ones(4, 4).triu(1).bool()
    options = {"attn_mask": later, "is_causal": True, "need_weights": need_weights}
    (_, theirs), layer = watched(MultiHead(**options), draw(2, 4, 8))
    assert bool((layer.weights.to_dense()[..., later] == 0).all())
    if theirs is not None:
        require_close(layer.weights.sum(-1), torch.ones(2, HEADS, 4))


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_h15_only_the_module_knows_that_it_is_causal(implementation: str) -> None:
    from transformers import WhisperConfig, WhisperModel

    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 9}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "pad_token_id": 0}
    sizes |= {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_source_positions": 6}
    sizes |= {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    torch.manual_seed(0)
    model = WhisperModel._from_config(
        WhisperConfig(**sizes), attn_implementation=implementation
    ).eval()
    with torch.no_grad(), heedmap.watch(model) as seen:
        model(input_features=draw(1, 80, 12), decoder_input_ids=torch.arange(1, 6)[None])
    decoder = seen["decoder.layers.0.self_attn"].to_dense()
    assert bool((decoder[..., torch.ones(5, 5).triu(1).bool()] == 0).all())
    assert seen.layer("decoder.layers.0.self_attn").kind == "causal"
    assert bool((seen["encoder.layers.0.self_attn"].to_dense() > 0).all())
    assert bool((seen["decoder.layers.0.encoder_attn"].to_dense() > 0).all())
    assert seen.check().ok


SPREAD: dict[str, Callable[[int], Mask]] = {
    "padding, causal": lambda size: Padding(torch.ones(2, size)) & Causal(),
    "one table of keys": lambda size: Visible(torch.ones(1, 1, 1, size).bool()),
    "a table spread over samples and heads": lambda size: Visible(
        torch.ones(1, 1, size).bool().expand(2, 1, 1, size)
    ),
    "documents": lambda size: Documents(torch.arange(size).expand(2, -1) // 100),
}


@pytest.mark.parametrize("case", SPREAD)
def test_h25_no_mask_is_spread_to_every_pair(case: str, forbid_dense: Any) -> None:
    size = 2048
    query = draw(2, 4, size, 4)
    mask = SPREAD[case](size)
    with forbid_dense(size * size):
        output, weights = heedmap.attention(query, query, query, mask=mask)
        summary = weights.summarize(top=1)
    assert bool(torch.isfinite(output).all())
    assert summary.received.shape == (2, 4, size)


def test_h25_the_module(forbid_dense: Any) -> None:
    x = draw(2, 2048, 8).requires_grad_()
    with forbid_dense(2048 * 2048):
        output, weights = plain_layer(8, causal=True)(x, torch.ones(2, 2048))
        (output.sum() + weights.entropy().sum()).backward()


def test_h25_what_a_watched_model_spreads_is_kept_small() -> None:
    size = 512
    query = draw(2, HEADS, size, 4)
    table = torch.ones(size, size).tril().bool().expand(2, HEADS, size, size).clone()
    _, layer = watched(Direct(attn_mask=table), query, query, query)
    (mask,) = {type(part) for part in heedmap.masks.parts_of(mask_of(layer.weights))}
    assert mask is Causal


def mask_of(weights: AttentionMap) -> Mask | None:
    from heedmap.lazy_weights import leaves

    (leaf,) = leaves(weights._rule)
    return leaf.problem.mask


@pytest.mark.parametrize("low", [-math.inf, -1e30, torch.finfo(torch.float32).min])
def test_h35_an_additive_mask_is_added(low: float) -> None:
    query, key, value = factors()
    bias = draw(4, 4, seed=5)
    bias[0] = bias[1, 2] = low
    model_bias = bias.clone()
    _, layer = watched(Direct(attn_mask=model_bias), query, key, value)
    for backend in ("fused", "tiles", "reference"):
        weights = heedmap.attention(query, key, value, bias=bias, backend=backend)[1]
        expected = dense_weights(query, key, bias=bias)
        require_close(weights, expected)
        assert bool((weights.to_dense()[..., 1, 2] == 0).all())
        require_close(weights[..., 1:, :], layer.weights[..., 1:, :].to_dense())
    nothing = layer.weights.to_dense()[..., 0, :]
    assert bool((nothing == 0).all()) == (low < -1e30), "hidden by −inf and by the least number"


@pytest.mark.bad_input
@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_h35_infinity_upwards_is_refused(wrong: float) -> None:
    bias = torch.zeros(4, 4)
    bias[2, 1] = wrong
    with pytest.raises(ArgumentError, match=r"finite numbers or -inf"):
        heedmap.attention(*factors(), bias=bias)
    with pytest.raises(ArgumentError, match=r"finite numbers or -inf"):
        AttentionMap.from_factors(*factors()[:2], bias=bias)
