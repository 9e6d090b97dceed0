"""How much keys are looked at in all, against dense sums in float64."""

import pytest
import torch
from torch import Tensor

from heedmap import AttentionMap, Causal, Padding
from heedmap.analysis import received
from heedmap.errors import ArgumentError, ShapeError

from ..conftest import ForbidDense
from .conftest import factors, plain_weights

LARGE = 2048


@pytest.mark.parametrize("lead", [(3,), (2, 3)])
@pytest.mark.parametrize("last", [None, 1, 4, 9])
def test_equals_the_dense_sums(lead: tuple[int, ...], last: int | None) -> None:
    visible = torch.ones(9, 9).tril().bool()
    given = [factors(*lead, 9, 4, seed=seed) for seed in range(3)]
    maps = [AttentionMap.from_factors(*pair, mask=Causal()) for pair in given]
    plain = torch.stack([plain_weights(*pair, visible) for pair in given])
    expected = plain[..., -(last or 9) :, :].sum((0, -3, -2))
    torch.testing.assert_close(received(maps, last=last).double(), expected, atol=1e-6, rtol=1e-5)


def test_layers_may_differ_in_heads_and_queries() -> None:
    layers = [torch.rand(2, 5, 4, dtype=torch.float64), torch.rand(1, 3, 4, dtype=torch.float64)]
    expected = layers[0].sum((0, 1)) + layers[1].sum((0, 1))
    torch.testing.assert_close(received(layers), expected)


def test_half_precision_is_summed_in_single() -> None:
    weights = torch.full((2, 5000, 2), 0.5, dtype=torch.float16)
    found = received([weights] * 20)
    assert found.tolist() == [100_000.0, 100_000.0]


def test_what_is_hidden_gets_nothing() -> None:
    query, key = factors(2, 2, 5, 4)
    key[1, :, 3:] = torch.nan
    mask = Padding.from_lengths(torch.tensor([5, 3]), 5)
    found = received([AttentionMap.from_factors(query, key, mask=mask)])
    assert found[1, 3:].tolist() == [0.0, 0.0]
    assert found.sum(1).tolist() == pytest.approx([10, 10])


def test_a_sample_that_sees_nothing() -> None:
    query, key = factors(1, 2, 5, 4)
    mask = Padding(torch.zeros(1, 5, dtype=torch.bool))
    assert received([AttentionMap.from_factors(query, key, mask=mask)]).tolist() == [[0.0] * 5]


def test_gradients() -> None:
    query, key = (part.double().requires_grad_() for part in factors(2, 5, 3))
    assert torch.autograd.gradcheck(
        lambda query, key: received([AttentionMap.from_factors(query, key)] * 2, last=3),
        (query, key),
    )


@pytest.mark.parametrize("last", [None, 64])
def test_nothing_of_all_pairs_is_made(forbid_dense: ForbidDense, last: int | None) -> None:
    query, key = factors(1, 2, LARGE, 4)
    with forbid_dense(LARGE * LARGE):
        found = received([AttentionMap.from_factors(query, key)] * 2, last=last)
    assert found.sum().item() == pytest.approx(4 * (last or LARGE), rel=1e-5)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("maps", "last", "error", "message"),
    [
        ([], None, ArgumentError, "maps must be a sequence"),
        ([torch.ones(1, 2, 3)], 3, ArgumentError, "last must be from 1 to the 2 queries; got 3"),
        ([torch.ones(1, 2, 3)], 0, ArgumentError, "last must be from 1 to the 2 queries; got 0"),
        ([torch.ones(1, 2, 3), torch.ones(1, 2, 4)], None, ShapeError, "same batch and keys"),
        ([None], None, ShapeError, "each of maps must be .* got NoneType"),
    ],
)
def test_bad_input(
    maps: list[Tensor], last: int | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        received(maps, last=last)
