"""The guard of the tests catches what it is there for, and nothing else."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import heedmap
from heedmap.errors import BudgetError

SIZE, WIDTH = 64, 8
CELLS = SIZE * SIZE


@pytest.fixture
def factors() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, SIZE, WIDTH, requires_grad=True).unbind()
    return query, key, value


def test_a_dense_softmax_is_caught(forbid_dense, factors) -> None:
    query, key, _ = factors
    with pytest.raises(pytest.fail.Exception, match="4096 elements"), forbid_dense(CELLS):
        torch.softmax(query @ key.mT, -1)


def test_a_mask_of_all_pairs_is_caught(forbid_dense) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"shape \[64, 64\]"), forbid_dense(CELLS):
        torch.ones(SIZE, SIZE, dtype=torch.bool)


def test_a_copy_of_an_expanded_row_is_caught(forbid_dense) -> None:
    row = torch.zeros(SIZE)
    with pytest.raises(pytest.fail.Exception), forbid_dense(CELLS):
        row.expand(SIZE, SIZE).contiguous()


def test_a_dense_gradient_is_caught(forbid_dense, factors) -> None:
    query, key, _ = factors
    loss = torch.softmax(query @ key.mT, -1)[0, 0]
    with pytest.raises(pytest.fail.Exception), forbid_dense(CELLS):
        torch.autograd.grad(loss, query)


def test_no_handler_hides_it(forbid_dense) -> None:
    def swallow() -> None:
        with contextlib.suppress(Exception):
            torch.ones(SIZE, SIZE)

    with pytest.raises(pytest.fail.Exception), forbid_dense(CELLS):
        swallow()


def test_blockwise_work_passes(forbid_dense, factors) -> None:
    query, key, value = factors
    expected = torch.softmax(query @ key.mT / WIDTH**0.5, -1) @ value
    with forbid_dense(CELLS):
        rows = [torch.softmax(row @ key.mT / WIDTH**0.5, -1) @ value for row in query.split(16)]
    torch.testing.assert_close(torch.cat(rows), expected)


def test_views_and_the_fused_kernel_pass(forbid_dense, factors) -> None:
    query, key, value = (factor[None, None] for factor in factors)
    dense = torch.zeros(SIZE, SIZE)
    with forbid_dense(CELLS):
        assert dense[0].sum() == 0
        assert dense.mT.shape == torch.zeros(SIZE).expand(SIZE, SIZE).shape
        F.scaled_dot_product_attention(query, key, value).sum().backward()


def test_attention_and_its_map_pass(forbid_dense) -> None:
    # Larger than the tiles that the library works in.
    size = 2048
    query, key, value = torch.randn(3, size, WIDTH, requires_grad=True).unbind()
    with forbid_dense(size * size):
        output, weights = heedmap.attention(query, key, value)
        (output.sum() + weights[3, 5]).backward()
        received = weights.sum(-2)
    assert float(received.detach().sum()) == pytest.approx(size, rel=1e-5)


def test_a_dense_map_is_refused_before_it_is_made(forbid_dense, factors) -> None:
    weights = heedmap.AttentionMap.from_factors(*factors[:2])
    with pytest.raises(BudgetError), forbid_dense(CELLS):
        weights.to_dense()
