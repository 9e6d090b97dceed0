"""Rollout against the product of dense matrices in float64."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

import heedmap
from heedmap import AttentionMap, Causal, Visible
from heedmap.analysis import rollout
from heedmap.errors import ArgumentError, BudgetError, DTypeError, ShapeError
from heedmap.watch import watch

from ..conftest import ForbidDense
from .conftest import factors, plain_weights

LARGE = 2048


def dense_rollout(layers: Sequence[Tensor], residual: float = 0.5) -> Tensor:
    product = torch.eye(layers[0].shape[-1], dtype=torch.float64)
    for weights in layers:
        mean = weights.mean(-3)
        one = torch.eye(mean.shape[-1], dtype=torch.float64)
        step = residual * one + (1 - residual) * mean
        product = torch.where(mean.sum(-1, keepdim=True) > 0, step, 0) @ product
    return product


def model(*lead: int, size: int = 9, layers: int = 3) -> tuple[list[AttentionMap], list[Tensor]]:
    """Return causal maps, and the same by the plain formula."""
    visible = torch.ones(size, size).tril().bool()
    given = [factors(*lead, size, 4, seed=seed) for seed in range(layers)]
    maps = [AttentionMap.from_factors(*pair, mask=Causal()) for pair in given]
    return maps, [plain_weights(*pair, visible) for pair in given]


@pytest.mark.parametrize("lead", [(3,), (2, 3), (1, 1)])
@pytest.mark.parametrize("residual", [0.0, 0.5, 0.9, 1.0])
def test_equals_the_dense_product(lead: tuple[int, ...], residual: float) -> None:
    maps, plain = model(*lead)
    found = rollout(maps, [0, 5, -1, 5], residual=residual)
    expected = dense_rollout(plain, residual)[..., [0, 5, -1, 5], :]
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))


def test_layers_may_differ_in_heads_and_be_dense() -> None:
    layers = [torch.rand(heads, 5, 5, dtype=torch.float64).softmax(-1) for heads in (1, 4)]
    found = rollout(layers, range(5))
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, dense_rollout(layers))


def test_a_query_that_sees_nothing_passes_nothing_on() -> None:
    visible = torch.ones(6, 6, dtype=torch.bool)
    visible[4] = False
    given = [factors(2, 6, 4, seed=seed) for seed in range(3)]
    masks = [None, Visible(visible), None]
    maps = [
        AttentionMap.from_factors(*pair, mask=mask) for pair, mask in zip(given, masks, strict=True)
    ]
    plain = [
        plain_weights(*pair, None if mask is None else visible)
        for pair, mask in zip(given, masks, strict=True)
    ]
    found = rollout(maps, [3, 4])
    torch.testing.assert_close(
        found.double(), dense_rollout(plain)[..., [3, 4], :], atol=1e-6, rtol=1e-5
    )
    last = rollout(maps[:2], [4, 3])
    assert last[0].tolist() == [0.0] * 6
    assert last[1].sum().item() == pytest.approx(1)


def test_what_sinks_take_flows_from_nowhere() -> None:
    query, key = factors(1, 2, 5, 4)
    sinks = torch.tensor([0.5, 2.0])
    scores = query.double() @ key.double().mT / 2
    plain = scores.exp() / (
        scores.exp().sum(-1, keepdim=True) + sinks.double().exp()[:, None, None]
    )
    found = rollout([AttentionMap.from_factors(query, key, sinks=sinks)] * 2, [2])
    expected = dense_rollout([plain] * 2)[:, [2]]
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-5)
    assert found.sum().item() < 0.9


def test_half_precision_is_summed_in_single() -> None:
    query, key = (part.bfloat16() for part in factors(2, 6, 4))
    found = rollout([AttentionMap.from_factors(query, key)] * 3, [0])
    expected = dense_rollout([plain_weights(query, key)] * 3)[..., [0], :]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-5)


def test_gradients() -> None:
    query, key = (part.double().requires_grad_() for part in factors(2, 5, 3))

    def flow(query: Tensor, key: Tensor) -> Tensor:
        weights = AttentionMap.from_factors(query, key, mask=Causal())
        return rollout([weights, weights], [4, 1])

    assert torch.autograd.gradcheck(flow, (query, key))


def test_a_watched_model_against_its_own_weights() -> None:
    def model(how: str) -> BertModel:
        config = BertConfig(
            hidden_size=16, num_hidden_layers=3, num_attention_heads=2, vocab_size=20
        )
        return BertModel._from_config(config, attn_implementation=how).eval()

    torch.manual_seed(0)
    ids = torch.randint(0, 20, (2, 7))
    valid = torch.tensor([[1] * 7, [1, 1, 1, 1, 0, 0, 0]])
    eager, fused = model("eager"), model("sdpa")
    fused.load_state_dict(eager.state_dict())
    with torch.no_grad():
        with watch(fused) as seen:
            fused(input_ids=ids, attention_mask=valid)
        given = eager(input_ids=ids, attention_mask=valid, output_attentions=True).attentions
    found = rollout(list(seen), [0])
    expected = dense_rollout([weights.double() for weights in given])[:, [0]]
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-4)
    assert found[1, 0, 4:].tolist() == [0.0, 0.0, 0.0]


def test_no_queries() -> None:
    assert rollout(model(2, 3)[0], []).shape == (2, 0, 9)


def test_nothing_of_all_pairs_is_made(forbid_dense: ForbidDense) -> None:
    query, key = factors(1, 2, LARGE, 4)
    query.requires_grad_()
    with forbid_dense(LARGE * LARGE):
        maps = [AttentionMap.from_factors(query, key, mask=Causal()) for _ in range(3)]
        found = rollout(maps, [0, -1])
        found.square().sum().backward()
    torch.testing.assert_close(found.detach().sum(-1), torch.ones(1, 2))
    assert query.grad is not None


def test_all_queries_fall_under_the_budget() -> None:
    maps, _ = model(2, 3)
    with heedmap.dense_budget(9 * 8 * 4 * 2):
        assert rollout(maps, range(8)).shape == (2, 8, 9)
        with pytest.raises(
            BudgetError, match="rollout of all queries must fit the dense budget of"
        ):
            rollout(maps, range(9))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("maps", "queries", "residual", "error", "message"),
    [
        ([], [0], 0.5, ArgumentError, "maps must be a sequence .* got none"),
        (torch.eye(3)[None], [0], 0.5, ArgumentError, "maps must be a sequence .* single tensor"),
        ([torch.eye(3)], [0], 0.5, ShapeError, r"each of maps must be .* got \[3, 3\]"),
        ([torch.ones(1, 2, 3)], [0], 0.5, ShapeError, "as many queries as keys"),
        ([torch.ones(1, 2, 2), torch.ones(1, 3, 3)], [0], 0.5, ShapeError, "same batch and keys"),
        ([torch.ones(1, 2, 2).long()], [0], 0.5, DTypeError, "floating-point weights; got"),
        ([torch.ones(0, 2, 2)], [0], 0.5, ShapeError, "each of maps must be"),
        ([torch.eye(2)[None]], [2], 0.5, ShapeError, "queries must be from -2 to 1; got 2"),
        ([torch.eye(2)[None]], [0], 1.5, ArgumentError, "residual must be from 0 to 1; got 1.5"),
        ([torch.eye(2)[None]], [0], float("nan"), ArgumentError, "residual must be"),
    ],
)
def test_bad_input(
    maps: list[Tensor], queries: list[int], residual: float, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        rollout(maps, queries, residual=residual)
