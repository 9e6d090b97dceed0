"""No question, forward or backward, makes a tensor of query × key elements."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Documents, Mask, Padding, Window

from .conftest import ForbidDense

LENGTH = 4096
QUESTIONS: dict[str, Callable[[AttentionMap], Tensor]] = {
    "rows": lambda w: w.sum(-1),
    "columns": lambda w: w.received(),
    "entropy": lambda w: w.entropy(),
    "top": lambda w: w.topk(4).values,
    "largest": lambda w: w.amax(-1),
    "picture": lambda w: w.pool(64, 64),
    "head mean": lambda w: w.mean(1).sum(-2),
    "product": lambda w: w @ torch.ones(LENGTH, 3),
    "product from the left": lambda w: torch.ones(3, LENGTH) @ w,
    "a row of a chain": lambda w: (w @ w @ w)[0, 0, 7].clone(),
    "diagonal": lambda w: w.diagonal(offset=-1, dim1=-2, dim2=-1),
    "count": lambda w: (w > 0.001).sum(),
    "variance": lambda w: w.var(-1),
    "logarithms": lambda w: (w.log() * w).nan_to_num().sum(-1),
    "scaled by rows": lambda w: (w / w.sum(-1, keepdim=True)).sum(-2),
    "symmetric": lambda w: (w + w.mT).sum(-1),
    "stack": lambda w: torch.stack([w, w]).mean((0, 2)).sum(-1),
    "a block": lambda w: w[0, :, 100:200, ::64].to_dense(max_bytes=1 << 20),
    "some columns": lambda w: w[..., torch.arange(0, LENGTH, 100)].sum(-1),
    "log-normaliser": lambda w: w.log_normalizer,
}
MASKS: dict[str, Mask | None] = {
    "all": None,
    "causal": Causal(),
    "padded": Padding(torch.arange(LENGTH)[None] < 3000),
    "window": Causal() & Window(before=200),
    "documents": Documents(torch.arange(LENGTH)[None] // 500) & Causal(),
}


def inputs(requires_grad: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, 2, LENGTH, 8, requires_grad=requires_grad) for _ in range(3)]


@pytest.mark.parametrize("mask", MASKS)
def test_attention_and_summary(mask: str, forbid_dense: ForbidDense) -> None:
    query, key, value = inputs(requires_grad=True)
    with forbid_dense(LENGTH * LENGTH):
        output, weights = heedmap.attention(query, key, value, mask=MASKS[mask])
        weights.summarize(top=4, pool=(64, 64))
        repr(weights)
        output.sum().backward()


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions(question: str, forbid_dense: ForbidDense) -> None:
    query, key, _ = inputs()
    with forbid_dense(LENGTH * LENGTH):
        answer = QUESTIONS[question](AttentionMap.from_factors(query, key, mask=Causal()))
        assert torch.isfinite(answer).all()


@pytest.mark.parametrize(
    "question", ["columns", "entropy", "top", "picture", "head mean", "product"]
)
def test_gradients(question: str, forbid_dense: ForbidDense) -> None:
    query, key, _ = inputs(requires_grad=True)
    with forbid_dense(LENGTH * LENGTH):
        weights = AttentionMap.from_factors(query, key, mask=Causal())
        QUESTIONS[question](weights).square().sum().backward()
    assert query.grad is not None
    assert torch.isfinite(query.grad).all()
