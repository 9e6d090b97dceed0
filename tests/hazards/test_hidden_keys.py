"""What is hidden weighs exactly nothing, and a query that sees nothing has zeros."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import heedmap
from heedmap import AttentionMap, Causal, Documents, Padding
from heedmap.nn import SelfAttention

from ..watch.dense import dense_weights, require_close
from .common import WAYS, WAYS_OF_GRADIENTS, Fused, Way, draw, heads_of, plain_layer, watched

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
ways_of_gradients = pytest.mark.parametrize(
    "way", WAYS_OF_GRADIENTS.values(), ids=WAYS_OF_GRADIENTS
)
backends = pytest.mark.parametrize("backend", ["fused", "tiles", "reference"])

NOTHING = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
LEFT = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
DEAD_LEFT = LEFT == 0


def require_zeros(weights: AttentionMap, dead: Tensor) -> None:
    """See that dead rows `[batch, query]` are empty by every question, and the others are not."""
    rows = dead[:, None].expand(weights.shape[:-1])
    assert bool((weights.to_dense()[rows] == 0).all())
    require_close(weights.sum(-1), (~rows).double())
    assert bool((weights.log_normalizer[rows] == -math.inf).all())
    assert bool(torch.isfinite(weights.log_normalizer[~rows]).all())
    assert bool((weights.entropy()[rows] == 0).all())
    assert bool((weights.topk(2).values[rows] == 0).all())
    for answer in (weights.received(), weights.amax(-1), weights.pool(2, 2), weights.mean(1)):
        assert bool(torch.isfinite(torch.as_tensor(answer.clone())).all())


@ways
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_h01_a_row_that_sees_nothing(way: Way, dtype: torch.dtype) -> None:
    x = draw(2, 5, 8, dtype=dtype)
    output, weights = way(x, x, NOTHING)
    assert bool((output[1] == 0).all())
    assert bool(torch.isfinite(output).all())
    require_zeros(weights, NOTHING == 0)


@ways_of_gradients
def test_h01_its_gradients_are_zero(way: Way) -> None:
    x = draw(2, 5, 8).requires_grad_()
    output, weights = way(x, x, NOTHING)
    loss = output.square().sum() + weights.entropy().sum() + weights.received().square().sum()
    (gradient,) = torch.autograd.grad(loss, [x])
    assert bool(torch.isfinite(gradient).all())
    assert bool((gradient[1] == 0).all())
    assert bool((gradient[0] != 0).any())


@backends
def test_h01_on_every_backend(backend: str) -> None:
    query, key, value = (draw(2, 2, 5, 4, seed=seed) for seed in range(3))
    options: dict[str, Any] = {"mask": Padding(NOTHING), "backend": backend}
    output, weights = heedmap.attention(query, key, value, **options)
    assert bool((output[1] == 0).all())
    require_zeros(weights, NOTHING == 0)


class MultiHead(nn.Module):
    """PyTorch's own module, in which True hides."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x: Tensor, valid: Tensor, average: bool = False) -> Tensor:
        return self.attend(
            *(x, x, x, valid == 0), need_weights=self.need_weights, average_attn_weights=average
        )[0]


@pytest.mark.parametrize("need_weights", [True, False])
def test_h01_where_the_watched_module_itself_gives_nan(need_weights: bool) -> None:
    output, layer = watched(MultiHead(need_weights), draw(2, 5, 8), NOTHING)
    assert bool(output[1].isnan().all()) == need_weights
    require_zeros(layer.weights, NOTHING == 0)


def test_h02_reading_the_weights_changes_no_output() -> None:
    x = draw(2, 5, 8)
    for way in WAYS.values():
        unread = way(x, x, NOTHING).output
        output, weights = way(x, x, NOTHING)
        weights.summarize(top=2, pool=(2, 2))
        assert torch.equal(output, unread)
        assert torch.equal(output, way(x, x, NOTHING).output)


def test_h02_weights_are_the_same_whether_the_module_was_asked_or_not() -> None:
    asked, not_asked = (
        watched(MultiHead(need), draw(2, 5, 8), NOTHING)[1] for need in (True, False)
    )
    require_close(asked.weights, not_asked.weights.to_dense())


@ways
def test_h03_left_padding_through_two_layers(way: Way) -> None:
    x = draw(2, 5, 8)
    x[DEAD_LEFT] = math.nan if way is not WAYS["watched"] else 0
    first, weights = way(x, x, LEFT, causal=True)
    require_zeros(weights, DEAD_LEFT)
    second, again = way(first, first, LEFT, causal=True)
    require_zeros(again, DEAD_LEFT)
    alone = x[1:, 2:]
    for _ in range(2):
        alone = way(alone, alone, causal=True).output
    require_close(second[1:, 2:], alone)


def test_h03_left_padding_through_a_watched_decoder() -> None:
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaModel(LlamaConfig(vocab_size=9, intermediate_size=8, **sizes)).eval()
    ids = torch.arange(1, 6)[None]
    with torch.no_grad(), heedmap.watch(model) as seen:
        padded = model(input_ids=ids, attention_mask=LEFT[1:]).last_hidden_state
    with torch.no_grad(), heedmap.watch(model) as seen_alone:
        alone = model(input_ids=ids[:, 2:]).last_hidden_state
    require_close(padded[:, 2:], alone)
    for weights, expected in zip(seen, seen_alone, strict=True):
        require_zeros(weights, DEAD_LEFT[1:])
        require_close(weights[..., 2:, 2:], expected.to_dense())


class Eager(nn.Module):
    """A model that writes attention out, with a number of its own for what is hidden."""

    def __init__(self, fill: float | None = None) -> None:
        super().__init__()
        self.fill = fill

    def forward(self, x: Tensor, source: Tensor, visible: Tensor) -> Tensor:
        query, key = heads_of(x), heads_of(source)
        fill = torch.finfo(x.dtype).min if self.fill is None else self.fill
        scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~visible, fill)
        return (torch.softmax(scores, -1) @ key).transpose(1, 2).flatten(2)


def test_h04_rows_that_see_nothing_are_zero_and_live_ones_agree_with_others() -> None:
    x = draw(2, 5, 8)
    visible = LEFT.bool()[:, None, None] & torch.ones(5, 5).tril().bool()
    theirs, layer = watched(Eager(), x, x, visible)
    assert bool((theirs[1, 0] != 0).all()), "others give such a row the mean of the values"
    require_zeros(layer.weights, DEAD_LEFT)
    for way in WAYS.values():
        output, weights = way(x, x, LEFT, causal=True)
        require_close(output[~DEAD_LEFT], theirs[~DEAD_LEFT])
        require_close(weights, layer.weights.to_dense())


@ways
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_h05_half_precision_mask(way: Way, dtype: torch.dtype, causal: bool) -> None:
    x = draw(2, 5, 8, dtype=dtype)
    output, weights = way(x, x, LEFT, causal=causal)
    assert bool(torch.isfinite(output).all())
    visible = LEFT.bool()[:, None, None].expand(2, 2, 5, 5)
    visible = visible & torch.ones(5, 5).tril().bool() if causal else visible
    dense = weights.to_dense()
    assert bool((dense[~visible] == 0).all())
    require_close(dense, dense_weights(heads_of(x), heads_of(x), visible=visible), 2e-3)


def test_h05_a_watched_model_that_fills_with_the_least_half_number() -> None:
    x = draw(2, 5, 8, dtype=torch.float16)
    visible = LEFT.bool()[:, None, None]
    _, layer = watched(Eager(), x, x, visible)
    assert bool((layer.weights.to_dense()[1, ..., :2] == 0).all())


SCORES = {"all far below": [-2e9, -3e9, 5.0], "huge": [3e38, 1e38, 3e38], "tiny": [-3e38, 1.0, 0.0]}


@ways
@pytest.mark.parametrize("case", SCORES)
def test_h06_no_score_is_low_or_high_enough(way: Way, case: str) -> None:
    scores = torch.tensor(SCORES[case], dtype=torch.float64)
    source = torch.zeros(1, 3, 4, dtype=torch.float64)
    source[0, :, 0] = source[0, :, 2] = scores * math.sqrt(2)
    x = torch.zeros(1, 1, 4, dtype=torch.float64)
    x[..., 0] = x[..., 2] = 1
    output, weights = way(x, source, torch.tensor([[1, 1, 0]]))
    expected = torch.softmax(scores[:2], 0)
    for head in range(2):
        require_close(weights[0, head, 0, :2], expected)
        assert weights[0, head, 0, 2].item() == 0
    assert bool(torch.isfinite(output).all())
    _, nothing = way(x, source, torch.tensor([[0, 0, 0]]))
    assert bool((nothing.to_dense() == 0).all()), "not a third each"


def test_h06_a_watched_model_in_which_a_hidden_key_wins_is_shown_as_it_is() -> None:
    # The −1e9 is the trap itself, set by the model: heedmap has no such number.
    x = torch.full((1, 3, 4), 4e4)
    source = torch.full((1, 3, 4), -4e4)
    visible = torch.tensor([[True, True, False]])
    output, layer = watched(Eager(-1e9), x, source, visible)
    assert bool((output == source).all())
    expected = torch.tensor([0.0, 0, 1]).expand(1, 2, 3, 3)
    require_close(layer.weights, expected)
    assert bool((WAYS["attention"](x, source, visible).weights.to_dense()[..., 2] == 0).all())


@ways
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_h11_what_stands_in_a_hidden_slot_reaches_nothing(way: Way, junk: float) -> None:
    results = []
    for filled in (0.0, junk):
        x, source = draw(2, 5, 8).requires_grad_(), draw(2, 5, 8, seed=1)
        source[DEAD_LEFT] = filled
        source.requires_grad_()
        output, weights = way(x, source, LEFT)
        parts = [weights.to_dense()]
        if way is not WAYS["watched"]:
            # What a watched model puts out is its own, NaN included.
            parts += [output, *torch.autograd.grad(output.square().sum(), [x, source])]
        results.append(parts)
    for clean, dirty in zip(*results, strict=True):
        require_close(dirty, clean)
    assert bool((results[1][0][1, ..., :2] == 0).all())


@ways
@pytest.mark.parametrize("causal", [False, True])
def test_h29_the_normaliser_of_a_row_that_sees_nothing(way: Way, causal: bool) -> None:
    x = draw(2, 5, 8)
    for valid, dead in ((NOTHING, NOTHING == 0), (LEFT, DEAD_LEFT & causal)):
        found = way(x, x, valid, causal=causal).weights.log_normalizer
        assert found.dtype == torch.float32
        assert torch.equal(found == -math.inf, dead[:, None].expand(2, 2, 5))


@backends
def test_h29_on_every_backend(backend: str) -> None:
    query, key, value = (draw(2, 2, 5, 4, seed=seed) for seed in range(3))
    for mask in (Padding(NOTHING), Padding(NOTHING) & Causal(), Causal(alignment=-2)):
        weights = heedmap.attention(query, key, value, mask=mask, backend=backend)[1]
        empty = weights.sum(-1) == 0
        assert bool(empty.any())
        assert torch.equal(weights.log_normalizer == -math.inf, empty)


def test_h46_padded_queries_look_unless_they_are_hidden_too() -> None:
    assert "still look" in str(SelfAttention.forward.__doc__)
    x = draw(2, 5, 8)
    for way in WAYS.values():
        weights = way(x, x, LEFT).weights
        require_close(weights.sum(-1), torch.ones(2, 2, 5))
    numbers = torch.where(LEFT == 1, 1, 0)
    mask = Documents(numbers, torch.where(LEFT == 1, 1, 2))
    output, weights = heedmap.attention(heads_of(x), heads_of(x), heads_of(x), mask=mask)
    require_zeros(weights, DEAD_LEFT)
    assert bool((output[1, :, :2] == 0).all())
    _, layer = watched(Fused(), x, x, (LEFT[:, None, :, None] == 1) & (LEFT[:, None, None] == 1))
    require_close(layer.weights, weights.to_dense())


@ways_of_gradients
def test_h47_a_loss_that_leaves_empty_rows_out(way: Way) -> None:
    x = draw(2, 5, 8, dtype=torch.float64).requires_grad_()
    output, weights = way(x, x, NOTHING)
    live = output.masked_fill((NOTHING == 0)[..., None], 0)
    loss = live.square().sum() + weights.log_weights[0].exp().square().sum()
    loss = loss + weights.log_normalizer.masked_fill(weights.sum(-1) == 0, 0).sum()
    (gradient,) = torch.autograd.grad(loss, [x])
    assert bool(torch.isfinite(gradient).all())


def test_h47_hidden_by_a_bias() -> None:
    query, key, value = (draw(1, 3, 4, seed=seed, dtype=torch.float64) for seed in range(3))
    bias = torch.zeros(3, 3, dtype=torch.float64)
    bias[1] = -math.inf
    leaves = [tensor.requires_grad_() for tensor in (query, key, value, bias)]
    for backend in ("tiles", "reference"):
        output, weights = heedmap.attention(query, key, value, bias=bias, backend=backend)
        loss = output.square().sum() + weights.entropy().sum()
        for gradient in torch.autograd.grad(loss, leaves):
            assert bool(torch.isfinite(gradient).all())
        assert bool((output[:, 1] == 0).all())


@ways
def test_h51_a_batch_of_one_is_masked_too(way: Way) -> None:
    x = draw(1, 5, 8)
    valid = torch.tensor([[1, 1, 1, 0, 0]])
    output, weights = way(x, x, valid)
    assert bool((weights.to_dense()[..., 3:] == 0).all())
    require_close(output, way(x, x[:, :3]).output)


def test_h51_in_a_watched_model() -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertModel(BertConfig(vocab_size=9, intermediate_size=8, **sizes)).eval()
    with torch.no_grad(), heedmap.watch(model) as seen:
        model(input_ids=torch.arange(5)[None], attention_mask=torch.tensor([[1, 1, 1, 0, 0]]))
    assert bool((seen[0].to_dense()[..., 3:] == 0).all())
    require_close(seen[0].sum(-1), torch.ones(1, 2, 5))


def test_h01_module_with_its_own_projections() -> None:
    torch.manual_seed(0)
    layer = SelfAttention(8, 8, num_heads=2, bias=True, output_dim=8)
    output, weights = layer(draw(2, 5, 8), NOTHING)
    require_zeros(weights, NOTHING == 0)
    assert layer.w_o is not None
    require_close(output[1], layer.w_o.bias.expand(5, 8))
    output.square().sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad is not None
        assert bool(torch.isfinite(parameter.grad).all())
    assert plain_layer(8).w_o is None
