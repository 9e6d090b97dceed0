"""Scales, number types, devices, the log-normaliser, and what is compared with what."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedmap
from heedmap import Causal, Documents, Padding
from heedmap.errors import ArgumentError, DTypeError
from heedmap.nn import SelfAttention

from ..derivatives import require_first_derivatives, require_second_derivatives
from ..watch.dense import dense_weights, require_close
from .common import HEADS, WAYS, Fused, Way, draw, heads_of, plain_layer, watched

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
backends = pytest.mark.parametrize("backend", ["auto", "tiles", "reference"])

accelerator = torch.accelerator.current_accelerator()
DEVICES = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
"""The processor, and what else this machine has: the tests of devices run on each."""

devices = pytest.mark.parametrize("device", DEVICES)
VALID = torch.tensor([[1] * 5, [0, 0, 1, 1, 0]])


class Direct(nn.Module):
    """A model that hands its arguments to PyTorch's function."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, **self.options)


TABLES = {
    "[query, key]": (5, 5),
    "spread over heads": (2, 1, 5, 5),
    "spread over samples": (1, 2, 5, 5),
    "spread over queries": (2, 1, 1, 5),
    "everything its own": (2, 2, 5, 5),
}


def require_as_on_the_processor(device: str, dtype: torch.dtype, visible: Tensor) -> None:
    """Compare one masked problem on a device, also watched, with float64 on the processor."""
    query, key = draw(2, 2, 5, 8, seed=1, dtype=dtype), draw(2, 2, 5, 8, seed=2, dtype=dtype)
    value = draw(2, 2, 5, 3, seed=3, dtype=dtype)
    expected = dense_weights(query, key, visible=visible)
    there = [tensor.to(device) for tensor in (query, key, value, visible)]
    output, weights = heedmap.attention(*there[:3], mask=there[3])
    _, layer = watched(Direct(attn_mask=there[3]), *there[:3])
    narrow = dtype in (torch.float16, torch.bfloat16)
    for found in (weights, layer.weights):
        assert found.device.type == device
        require_close(found.to_dense().cpu(), expected, 1e-2 if narrow else 1e-6)
        assert bool((found.to_dense().cpu()[~visible.expand(2, 2, 5, 5)] == 0).all())
    require_close(output.cpu(), expected @ value.double(), 3e-2 if narrow else 1e-5)


@devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("table", TABLES)
def test_h23_every_device_agrees_with_the_processor(
    device: str, dtype: torch.dtype, table: str
) -> None:
    visible = draw(*TABLES[table], seed=4) > -0.5
    require_as_on_the_processor(device, dtype, visible)


@devices
@pytest.mark.parametrize("size", [31, 33, 65])
def test_h23_no_later_key_leaks_at_the_end_of_a_block(device: str, size: int) -> None:
    query, key, value = (draw(1, 2, size, 8, seed=seed, dtype=torch.float16) for seed in range(3))
    there = [tensor.to(device) for tensor in (query, key, value)]
    later = torch.ones(size, size).triu(1).bool()
    weights = heedmap.attention(*there, mask=Causal())[1].to_dense().cpu()
    _, layer = watched(Direct(is_causal=True), *there)
    for found in (weights, layer.weights.to_dense().cpu()):
        assert bool((found[..., later] == 0).all())
        require_close(found, dense_weights(query, key, visible=~later), 2e-3)


@devices
@pytest.mark.parametrize("seen", ["everything", "nothing", "one row sees nothing"])
def test_h53_truth_values_are_read_as_such_on_every_device(device: str, seen: str) -> None:
    visible = torch.full((5, 5), seen != "nothing")
    if seen == "one row sees nothing":
        visible[2] = False
    require_as_on_the_processor(device, torch.float32, visible)


@ways
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_h28_the_normaliser_is_a_natural_logarithm(
    way: Way, dtype: torch.dtype, causal: bool
) -> None:
    x = draw(2, 5, 8, dtype=dtype)
    weights = way(x, x, VALID, causal=causal).weights
    found = weights.log_normalizer
    assert found.shape == (2, HEADS, 5)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    visible = VALID.bool()[:, None, None] & (torch.ones(5, 5).tril().bool() | (not causal))
    scores = heads_of(x).double() @ heads_of(x).double().mT / 2
    expected = torch.logsumexp(scores.masked_fill(~visible, -math.inf), -1)
    require_close(found, expected, 1e-5)
    rows = torch.exp(weights.scores.to_dense().double() - found[..., None].double())
    require_close(weights, rows.nan_to_num(0), 1e-2 if dtype == torch.bfloat16 else 1e-6)


@backends
def test_h28_it_has_a_gradient(backend: str) -> None:
    query, key = (draw(1, 2, 4, 3, seed=seed, dtype=torch.float64) for seed in range(2))

    def normaliser(query: Tensor, key: Tensor) -> Tensor:
        weights = heedmap.attention(query, key, key, mask=Causal(), backend=backend)[1]
        return weights.log_normalizer

    leaves = (query.requires_grad_(), key.requires_grad_())
    require_first_derivatives(normaliser, leaves)
    require_second_derivatives(normaliser, leaves)


@backends
@pytest.mark.parametrize(
    "shape", [(4, 5), (1, 2, 4, 5), (2, 1, 1, 5), (2, 2, 4, 1), (1, 1)], ids=str
)
def test_h30_the_gradient_of_a_bias_that_is_spread(shape: tuple[int, ...], backend: str) -> None:
    query, key = draw(2, 2, 4, 3, seed=1), draw(2, 2, 5, 3, seed=2)
    valid = torch.tensor([[1] * 5, [0, 0, 1, 1, 0]])

    def call(bias: Tensor) -> tuple[Tensor, Tensor]:
        output, weights = heedmap.attention(
            *(query.double(), key.double(), key.double()),
            mask=Padding(valid),
            bias=bias,
            backend=backend,
        )
        return output, weights.entropy()

    bias = draw(*shape, seed=3, dtype=torch.float64).requires_grad_()
    require_first_derivatives(call, (bias,))
    require_second_derivatives(call, (bias,))


class Biased(nn.Module):
    """A model with a bias that it learns."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(draw(*shape, seed=3))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, key, attn_mask=self.bias)


@pytest.mark.parametrize("shape", [(4, 5), (1, 2, 4, 5), (2, 1, 1, 5)], ids=str)
def test_h30_of_a_watched_model(shape: tuple[int, ...]) -> None:
    query, key = draw(2, 2, 4, 3, seed=1), draw(2, 2, 5, 3, seed=2)
    model = Biased(*shape)
    _, layer = watched(model, query, key, grad=True)
    (found,) = torch.autograd.grad(layer.weights.entropy().sum(), [model.bias])
    scores = query @ key.mT / math.sqrt(3) + model.bias
    weights = torch.softmax(scores, -1)
    entropy = -(weights * weights.log()).sum()
    (expected,) = torch.autograd.grad(entropy, [model.bias])
    require_close(found, expected, 1e-5)


@ways
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 8.0, 300.0])
def test_h31_scores_are_made_in_float32(way: Way, dtype: torch.dtype, size: float) -> None:
    x, source = draw(2, 9, 8, seed=1).to(dtype) * size, draw(2, 9, 8, seed=2).to(dtype) * size
    output, weights = way(x, source)
    expected = dense_weights(heads_of(x), heads_of(source))
    assert bool(torch.isfinite(output).all())
    assert weights.dtype == dtype
    # Rounded to the type of the inputs once, at the end.
    rounding = torch.finfo(dtype).eps
    require_close(weights, expected, rounding)
    require_close(weights.double(), expected, 3e-2 if size == 300 else 1e-5)
    values = float(source.abs().amax())
    mixed = (expected @ heads_of(source).double()).transpose(1, 2).flatten(2)
    require_close(output, mixed, 4 * rounding * values)


def test_h32_under_autocast_types_do_not_collide() -> None:
    x, valid = draw(2, 5, 8), VALID
    bias = draw(5, 5, seed=4)
    with torch.autocast("cpu", torch.bfloat16):
        for way in WAYS.values():
            output, weights = way(x, x, valid)
            assert output.dtype == weights.dtype
            require_close(weights.sum(-1), torch.ones(2, HEADS, 5), 1e-2)
        output, weights = heedmap.attention(*[heads_of(x)] * 3, bias=bias)
        assert output.dtype == torch.float32
        require_close(weights, dense_weights(heads_of(x), heads_of(x), bias=bias))
        narrow = heads_of(x).bfloat16()
        output, weights = heedmap.attention(narrow, narrow, narrow, bias=bias, mask=Padding(valid))
        assert output.dtype == torch.bfloat16
        layer = SelfAttention(8, 8, num_heads=2, causal=True)
        output, weights = layer(x, valid)
        assert output.dtype == weights.dtype == torch.bfloat16
        (output.float().sum() + weights.entropy().float().sum()).backward()
    assert layer.w_q.weight.grad is not None
    assert layer.w_q.weight.grad.dtype == torch.float32


def test_h32_a_watched_model_under_autocast() -> None:
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True, dropout=0.0)
    with torch.autocast("cpu", torch.bfloat16):
        _, layer = watched(model, draw(2, 5, 8))
    require_close(layer.weights.sum(-1), torch.ones(2, 2, 5), 1e-2)
    assert layer.output_error is not None
    assert layer.output_error < 5e-2


@pytest.mark.bad_input
def test_h32_two_types_by_hand_are_refused_by_name() -> None:
    query = draw(1, 5, 8)
    with pytest.raises(DTypeError, match=r"key must have the number type of query; got .*float32"):
        heedmap.attention(query.bfloat16(), query, query)


@backends
@pytest.mark.parametrize("scale", [0.0, -0.0, -3.0, 1e-30, 2.5, None])
@pytest.mark.parametrize("causal", [False, True])
def test_h36_any_finite_scale(scale: float | None, causal: bool, backend: str) -> None:
    query, key, value = (draw(1, 2, 5, 4, seed=seed, dtype=torch.float64) for seed in range(3))
    mask = Causal() if causal else None
    visible = torch.ones(5, 5).tril().bool() if causal else None
    expected = dense_weights(query, key, visible=visible, scale=scale)
    options: dict[str, Any] = {"mask": mask, "scale": scale, "backend": backend}
    output, weights = heedmap.attention(query, key, value, **options)
    require_close(weights, expected, 1e-12)
    require_close(output, expected @ value, 1e-12)
    model = Direct(attn_mask=visible, scale=scale)
    _, layer = watched(model, query, key, value)
    require_close(layer.weights, expected, 1e-12)


@pytest.mark.bad_input
@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf])
def test_h36_a_scale_that_is_no_number_is_refused(scale: float) -> None:
    with pytest.raises(ArgumentError, match="scale must be a finite number"):
        heedmap.attention(*[draw(5, 8)] * 3, scale=scale)


def test_h37_scores_are_divided_by_the_root_of_the_width_of_one_head() -> None:
    torch.manual_seed(0)
    layer, x = SelfAttention(6, 16, num_heads=4), draw(2, 5, 6)
    query, key = (w(x).unflatten(-1, (4, 4)).transpose(1, 2) for w in (layer.w_q, layer.w_k))
    expected = torch.softmax(query @ key.mT / math.sqrt(4), -1)
    require_close(layer(x)[1].detach(), expected.detach())
    require_close(heedmap.attention(query, key, key)[1].detach(), expected.detach())
    theirs = nn.MultiheadAttention(16, 4, batch_first=True)
    y = draw(2, 5, 16)
    ours = SelfAttention.from_multihead_attention(theirs)
    dense = theirs(y, y, y, average_attn_weights=False)[1].detach()
    require_close(ours(y)[1].detach(), dense)


def test_h48_nothing_overflows_on_the_way_to_a_narrower_type() -> None:
    query, key = draw(1, 2, 5, 4, seed=1), draw(1, 2, 5, 4, seed=2)
    bias = torch.full((5, 5), -1e300, dtype=torch.float64).tril(-1)
    later = torch.ones(5, 5).tril(-1).bool()
    for dtype in (torch.float64, torch.float32, torch.float16):
        factors = [query.to(dtype), key.to(dtype), key.to(dtype)]
        output, weights = heedmap.attention(*factors, bias=bias, mask=Padding(torch.ones(1, 5)))
        assert bool(torch.isfinite(output).all())
        expected = dense_weights(*factors[:2], visible=~later)
        require_close(weights, expected, 1e-3 if dtype == torch.float16 else 1e-6)
        assert bool(torch.isfinite(weights.log_normalizer).all())


def test_h48_lengths_of_queries_and_keys_are_apart() -> None:
    query, key = draw(2, 2, 4, 4, seed=1), draw(2, 2, 6, 4, seed=2)
    lengths = torch.tensor([6, 3])
    weights = heedmap.attention(query, key, key, mask=Padding.from_lengths(lengths, 6))[1]
    visible = torch.arange(6) < lengths[:, None, None, None]
    require_close(weights, dense_weights(query, key, visible=visible))
    mask = Documents(
        torch.tensor([[0, 0, 0, 1], [0, 1, 1, 1]]), (torch.arange(6) >= lengths[:, None]).long()
    )
    rows = torch.tensor([[1.0, 1, 1, 0], [1, 1, 1, 1]])
    found = heedmap.attention(query, key, key, mask=mask)[1].sum(-1)
    require_close(found, rows[:, None].expand(2, 2, 4))


@ways
@pytest.mark.parametrize("causal", [False, True])
def test_h54_what_is_compared_with_is_the_kernel_not_its_description(
    way: Way, causal: bool
) -> None:
    x = draw(2, 5, 8)
    visible = torch.ones(5, 5).tril().bool() if causal else None
    kernel = Fused()(x, x, visible)
    output, weights = way(x, x, causal=causal)
    require_close(output, kernel)
    mixed = weights.detach() @ heads_of(x)
    require_close(mixed.transpose(1, 2).flatten(2), kernel)
    assert plain_layer(8, causal=True).causal
