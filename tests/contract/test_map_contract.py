"""What every map owes to code that was written for tensors: the same answer, lazily."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import heedmap
from heedmap import AttentionMap, places

from .flavours import FLAVOURS, Operation


def _matrix(held: Tensor) -> Tensor:
    return torch.linspace(-1, 1, held.shape[-1] * 3).reshape(held.shape[-1], 3).to(held.dtype)


LAZY: dict[str, Operation] = {
    "sum over all": lambda a: a.sum(),
    "sum over keys": lambda a: a.sum(-1),
    "sum over queries, kept": lambda a: a.sum(dim=-2, keepdim=True),
    "sum over both": lambda a: a.sum((-2, -1)),
    "mean over the first": lambda a: a.mean(0),
    "mean with axis": lambda a: a.mean(axis=-1),
    "mean over all": lambda a: a.mean(),
    "mean over first and last": lambda a: a.mean((0, -1), keepdim=True),
    "largest of rows": lambda a: a.amax(-1),
    "largest of columns": lambda a: a.max(-2)[0],
    "largest over the first": lambda a: a.max(0).values,
    "largest of all": lambda a: a.max(),
    "smallest of rows": lambda a: a.min(dim=-1).values,
    "top of rows": lambda a: a.topk(2).values,
    "top of columns": lambda a: a.topk(2, dim=-2).values,
    "bottom of rows": lambda a: a.topk(2, largest=False).values,
    "variance over keys": lambda a: a.var(-1),
    "deviation over queries": lambda a: a.std(-2, unbiased=False),
    "norm": lambda a: a.norm(dim=-1),
    "first": lambda a: a[0],
    "last query": lambda a: a[..., -1, :],
    "one key": lambda a: a[..., 2],
    "block": lambda a: a[..., 1:3, :2],
    "steps": lambda a: a[..., ::2, 1::3],
    "keys by number": lambda a: a[..., [1, 0, 1]],
    "keys by marks": lambda a: a[..., torch.arange(a.shape[-1]) % 2 == 0],
    "queries by number": lambda a: a[..., torch.tensor([1, -1]), :],
    "new dimension": lambda a: a[None],
    "narrow": lambda a: a.narrow(-1, 1, 2),
    "select": lambda a: a.select(-2, 1),
    "unbind": lambda a: a.unbind(0)[0],
    "split": lambda a: a.split(2, -1)[0],
    "chunk": lambda a: a.chunk(2, -2)[1],
    "flip": lambda a: a.flip(-1),
    "transpose": lambda a: a.transpose(-1, -2),
    "mT": lambda a: a.mT,
    "unsqueeze": lambda a: a.unsqueeze(0),
    "flatten the lead": lambda a: a.reshape(-1, *a.shape[-2:]),
    "expand": lambda a: a[None].expand(2, *a.shape),
    "double": lambda a: a.double(),
    "add": lambda a: a + 0.5,
    "subtract from": lambda a: 1 - a,
    "divide by row sums": lambda a: a / (a.sum(-1, keepdim=True) + 1),
    "square": lambda a: a**2,
    "log with eps": lambda a: torch.log(a + 1e-3),
    "entropy by hand": lambda a: -(a * torch.log(a + 1e-3)).sum(-1),
    "clamp": lambda a: a.clamp(0.1, 0.3),
    "clip": lambda a: a.clip(min=0.1),
    "masked fill": lambda a: a.masked_fill(torch.eye(*a.shape[-2:]).bool(), 0.0),
    "where": lambda a: torch.where(a > 0.1, a, torch.zeros(())),
    "times a matrix, summed": lambda a: (a * torch.ones(a.shape[-2:]).tril()).sum(-1),
    "softmax again": lambda a: F.softmax(a, dim=-1),
    "times values": lambda a: a @ _matrix(a),
    "times a vector": lambda a: a @ _matrix(a)[:, 0],
    "values times": lambda a: _matrix(a.mT).mT @ a,
    "stack": lambda a: torch.stack([a, a]).mean(0),
    "cat of keys": lambda a: torch.cat([a, a], -1).sum(-1),
    "diagonal": lambda a: a.diagonal(dim1=-2, dim2=-1),
    "diagonal above": lambda a: a.diagonal(2, -2, -1),
    "diagonal, dims exchanged": lambda a: a.diagonal(offset=1, dim1=-1, dim2=-2),
    "squared difference": lambda a: F.mse_loss(a, a * 0.5),
    "detach": lambda a: a.detach(),
}
EXACT: dict[str, Operation] = {
    "count": lambda a: (a > 0.1).sum(),
    "count by row": lambda a: (a > 0.1).sum(-1),
    "share": lambda a: (a > 0.1).float().mean(-1),
    "any": lambda a: (a > 2).any(),
    "all": lambda a: (a <= 3).all(-1),
    "zeros": lambda a: a == 0,
    "not a number": lambda a: torch.isnan(a).any(),
}


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> tuple[AttentionMap, Tensor]:
    return FLAVOURS[request.param]()


def as_tensor(found: Tensor) -> Tensor:
    return found.to_dense(max_bytes=1 << 20) if isinstance(found, AttentionMap) else found


class TestMapContract:
    def test_the_weights_are_exact(self, flavour: tuple[AttentionMap, Tensor]) -> None:
        weights, twin = flavour
        assert weights.shape == twin.shape
        torch.testing.assert_close(as_tensor(weights).double(), twin, atol=2e-6, rtol=1e-5)
        assert bool((as_tensor(weights)[twin == 0] == 0).all())

    @pytest.mark.parametrize("operation", LAZY)
    def test_lazily_as_a_tensor_would(
        self, flavour: tuple[AttentionMap, Tensor], operation: str
    ) -> None:
        weights, twin = flavour
        with heedmap.dense_budget(0):
            found = LAZY[operation](weights)
        expected = LAZY[operation](twin)
        assert found.shape == expected.shape
        torch.testing.assert_close(
            as_tensor(found).double(), expected.double(), atol=1e-5, rtol=1e-4
        )

    @pytest.mark.parametrize("operation", EXACT)
    def test_counts_are_exact(self, flavour: tuple[AttentionMap, Tensor], operation: str) -> None:
        weights = flavour[0]
        dense = as_tensor(weights)
        with heedmap.dense_budget(0):
            found = EXACT[operation](weights)
        expected = EXACT[operation](dense)
        assert found.dtype == expected.dtype
        assert torch.equal(as_tensor(found), expected)

    def test_the_answer_does_not_depend_on_the_tile_size(
        self, flavour: tuple[AttentionMap, Tensor], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        weights = flavour[0]
        whole = weights.sum(-1), weights.sum(-2), weights.topk(2), weights.pool(3, 2)
        monkeypatch.setattr(places, "CELLS", 8)
        monkeypatch.setattr(places, "SIDE", 3)
        pieces = weights.sum(-1), weights.sum(-2), weights.topk(2), weights.pool(3, 2)
        for one, other in zip((*whole[:2], whole[3]), (*pieces[:2], pieces[3]), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(whole[2].values, pieces[2].values, atol=1e-6, rtol=1e-5)

    def test_selection_commutes_with_dense(self, flavour: tuple[AttentionMap, Tensor]) -> None:
        weights = flavour[0]
        dense = as_tensor(weights)
        key = (..., slice(1, None, 2), [1, 0])
        torch.testing.assert_close(as_tensor(weights[key]), dense[key], atol=1e-7, rtol=1e-6)

    def test_summary_is_what_the_single_questions_answer(
        self, flavour: tuple[AttentionMap, Tensor]
    ) -> None:
        weights, twin = flavour
        summary = weights.summarize(top=3, pool=(2, 3))
        close = {"atol": 2e-5, "rtol": 1e-4}
        torch.testing.assert_close(summary.received.double(), twin.sum(-2), **close)
        entropy = torch.special.entr(twin).sum(-1)
        torch.testing.assert_close(summary.entropy.double(), entropy, **close)
        torch.testing.assert_close(weights.entropy().double(), entropy, **close)
        torch.testing.assert_close(weights.received().double(), twin.sum(-2), **close)
        assert summary.top_weights is not None
        assert summary.top_keys is not None
        torch.testing.assert_close(summary.top_weights.double(), twin.topk(3).values, **close)
        read = as_tensor(weights).gather(-1, summary.top_keys)
        torch.testing.assert_close(read, summary.top_weights, atol=1e-6, rtol=1e-5)
        plain = weights.summarize()
        assert plain.top_keys is None
        assert plain.pooled is None
        torch.testing.assert_close(plain.entropy, summary.entropy, atol=1e-6, rtol=1e-5)
        assert summary.pooled is not None
        torch.testing.assert_close(summary.pooled, weights.pool(2, 3), atol=1e-6, rtol=1e-5)

    @pytest.mark.parametrize("size", [(2, 3), (3, 3), (4, 2), (100, 100)], ids=str)
    def test_pictures_are_of_disjoint_blocks(
        self, flavour: tuple[AttentionMap, Tensor], size: tuple[int, int]
    ) -> None:
        weights, twin = flavour
        rows, columns = (min(n, have) for n, have in zip(size, twin.shape[-2:], strict=True))
        bands = [
            [n * i // k for i in range(k + 1)]
            for n, k in zip(twin.shape[-2:], (rows, columns), strict=True)
        ]
        for how in ("mean", "sum", "max"):
            found = weights.pool(*size, how=how)
            for i, j in ((0, 0), (rows - 1, columns - 1), (rows // 2, columns // 2)):
                block = twin[..., bands[0][i] : bands[0][i + 1], bands[1][j] : bands[1][j + 1]]
                block = block.flatten(-2)
                expected = block.amax(-1) if how == "max" else getattr(block, how)(-1)
                torch.testing.assert_close(
                    found[..., i, j].double(), expected, atol=1e-5, rtol=1e-4
                )

    def test_edges_are_the_cells_above(self, flavour: tuple[AttentionMap, Tensor]) -> None:
        weights = flavour[0]
        place, value = weights.edges(0.2)
        dense = as_tensor(weights)
        assert torch.equal(place, (dense >= 0.2).nonzero())
        torch.testing.assert_close(value, dense[tuple(place.unbind(1))])
