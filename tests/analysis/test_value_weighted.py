"""Weights times norms of values, against the dense formula in float64."""

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Padding
from heedmap.analysis import value_norms, value_weighted
from heedmap.errors import DTypeError, ShapeError

from ..conftest import ForbidDense
from .conftest import factors, plain_weights

LARGE = 2048


def draw(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("lead", [(4,), (2, 4)])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_equals_the_dense_product(lead: tuple[int, ...], kv_heads: int) -> None:
    query, key = factors(*lead, 7, 3)
    value = draw(*lead[:-1], kv_heads, 7, 5)
    found = value_weighted(AttentionMap.from_factors(query, key), value_norms(value))
    assert isinstance(found, AttentionMap)
    lengths = value.double().square().sum(-1).sqrt().repeat_interleave(4 // kv_heads, -2)
    expected = plain_weights(query, key) * lengths[..., None, :]
    torch.testing.assert_close(found.to_dense().double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_lengths_of_what_each_key_adds_to_the_output(kv_heads: int) -> None:
    """They are those of the terms whose sum is the output of the layer."""
    query, key = factors(2, 4, 7, 3)
    value, projection = draw(2, kv_heads, 7, 5), draw(4, 5, 6, seed=6)
    shared = value.repeat_interleave(4 // kv_heads, 1)
    output, weights = heedmap.attention(query, key, shared)
    terms = weights.to_dense().double()[..., None] * (
        shared.double() @ projection.double()
    ).unsqueeze(2)
    torch.testing.assert_close(
        terms.sum(3), output.double() @ projection.double(), atol=1e-5, rtol=1e-5
    )
    found = value_weighted(weights, value_norms(value, projection))
    torch.testing.assert_close(found.to_dense().double(), terms.norm(dim=-1), atol=1e-5, rtol=1e-5)


def test_what_is_hidden_stays_0_whatever_its_value() -> None:
    query, key = (part.requires_grad_() for part in factors(1, 2, 5, 3))
    value = draw(1, 2, 5, 4)
    value[..., 3, :], value[..., 4, :] = torch.nan, torch.inf
    mask = Padding.from_lengths(torch.tensor([3]), 5)
    found = value_weighted(AttentionMap.from_factors(query, key, mask=mask), value_norms(value))
    assert torch.equal(found[..., 3:].to_dense(), torch.zeros(1, 2, 5, 2))
    found.sum(-1).square().sum().backward()
    assert query.grad is not None
    assert torch.isfinite(query.grad).all()
    assert query.grad.abs().sum() > 0


def test_a_value_that_is_seen_and_not_a_number_shows() -> None:
    found = value_weighted(torch.tensor([[[0.5, 0.5], [0.0, 1.0]]]), torch.tensor([[torch.nan, 2]]))
    torch.testing.assert_close(
        found.to_dense(), torch.tensor([[[torch.nan, 1.0], [0.0, 2.0]]]), equal_nan=True
    )


def test_number_types() -> None:
    query, key = (part.half() for part in factors(2, 5, 4))
    norms = value_norms(torch.full((2, 5, 4), 300.0).half())
    assert norms.dtype == torch.float32
    assert norms[0, 0].item() == 600.0
    assert value_norms(torch.full((1, 1, 4), 4e4).half()).item() == pytest.approx(8e4, rel=1e-3)
    assert value_weighted(AttentionMap.from_factors(query, key), norms).dtype == torch.float16


def test_gradients() -> None:
    query, key = (part.double().requires_grad_() for part in factors(2, 5, 3))
    value, projection = draw(1, 5, 3).double(), draw(2, 3, 4).double()
    assert torch.autograd.gradcheck(
        lambda *given: value_weighted(
            AttentionMap.from_factors(*given[:2]), value_norms(*given[2:])
        ).sum(-2),
        (query, key, value.requires_grad_(), projection.requires_grad_()),
    )


def test_nothing_of_all_pairs_is_made(forbid_dense: ForbidDense) -> None:
    query, key = factors(1, 2, LARGE, 4)
    value = draw(1, 1, LARGE, 4)
    with forbid_dense(LARGE * LARGE):
        weights = AttentionMap.from_factors(query, key, mask=Causal())
        found = value_weighted(weights, value_norms(value, draw(2, 4, 8)))
        assert torch.isfinite(found.received()).all()
        value[..., 0, :] = torch.nan
        assert value_weighted(weights, value_norms(value))[..., 1:].received().isfinite().all()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("weights", "norms", "error", "message"),
    [
        (torch.ones(2, 2), torch.ones(1, 2), ShapeError, "weights must be"),
        (torch.ones(2, 2, 2).int(), torch.ones(2, 2), DTypeError, "floating-point"),
        (
            torch.ones(4, 2, 2),
            torch.ones(4, 3),
            ShapeError,
            r"norms must be \[kv_heads, 2\] .* got \[4, 3\]",
        ),
        (torch.ones(1, 4, 2, 2), torch.ones(4, 2), ShapeError, r"\[1, kv_heads, 2\]"),
        (
            torch.ones(4, 2, 2),
            torch.ones(3, 2),
            ShapeError,
            "norms must have a number of heads that divides 4; got 3",
        ),
    ],
)
def test_bad_weights_or_norms(
    weights: Tensor, norms: Tensor, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        value_weighted(weights, norms)


@pytest.mark.bad_input
@pytest.mark.parametrize("shape", [(4, 2, 6), (3, 5, 6), (4, 5), (0, 5, 6)])
def test_bad_projections(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="output_projection must be"):
        value_norms(torch.ones(2, 7, 5), torch.ones(shape))


@pytest.mark.bad_input
def test_bad_values() -> None:
    with pytest.raises(
        ShapeError, match=r"must be \[batch, kv_heads, key, value_dim\] or .* got \[7, 5\]"
    ):
        value_norms(torch.ones(7, 5), torch.ones(4, 5, 6))
