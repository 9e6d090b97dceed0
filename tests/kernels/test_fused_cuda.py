"""PyTorch's kernels for GPUs: what they are asked, and that none is believed before it is checked.

Without a GPU, stand-ins that compute on a CPU take their places, right ones and wrong ones.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import Causal, Mask, Padding, Window
from heedmap.kernels import fused, reference
from heedmap.kernels.fused import cuda, sampled
from heedmap.kernels.fused.engines import ENGINES, Engine
from heedmap.kernels.fused.stretches import stretches_of
from heedmap.problem import Problem, make_problem

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU; torch finds none on this machine"
)


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    known = dict(cuda._right)
    cuda._right.clear()
    yield
    cuda._right.clear()
    cuda._right.update(known)


def problem_of(
    batch: int = 2,
    queries: int = 40,
    keys: int = 50,
    mask: Mask | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    **options: Any,
) -> tuple[Problem, Tensor]:
    torch.manual_seed(0)
    query = torch.randn(batch, 4, queries, 12).to(device, dtype)
    key, value = (torch.randn(batch, 2, keys, n).to(device, dtype) for n in (12, 5))
    mask = None if mask is None else mask.to(device)
    given: dict[str, Any] = {"scale": None, "soft_cap": None, "bias": None, "sinks": None} | options
    problem, values = make_problem(query, key, value, mask=mask, **given)
    assert values is not None
    return problem, values


def plain(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Return what a kernel should: it takes widths of eight, and a square where it is causal."""
    assert query.shape[-1] % 8 == key.shape[-1] % 8 == value.shape[-1] % 8 == 0
    assert not is_causal or query.shape[2] == key.shape[2]
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, dim=1).float() for t in (key, value))
    scores = query.float() @ key.mT * scale
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1) > 0, -math.inf)
    return (scores.softmax(-1) @ value).to(query.dtype), scores.logsumexp(-1)


def stand_in(
    name: str,
    spoil: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda o, n: (o, n),
    shares_heads: bool = True,
) -> Engine:
    """Return a kernel that takes everything, and gives `spoil` of what is right."""

    def run(*inputs: Any) -> tuple[Tensor, Tensor]:
        assert shares_heads or inputs[0].shape[1] == inputs[1].shape[1]
        return spoil(*plain(*inputs))

    return Engine(name, lambda _: True, run, shares_heads)


WRONG: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "in base 2": lambda output, normalizer: (output, normalizer / math.log(2)),
    "rows of a padded layout": lambda output, normalizer: (
        output,
        torch.nn.functional.pad(normalizer, (0, 24))
        .flatten()[: normalizer.numel()]
        .view_as(normalizer),
    ),
    "another order of heads": lambda output, normalizer: (output, normalizer.flip(1)),
    "rounded to bfloat16": lambda output, normalizer: (output, normalizer.bfloat16().float()),
    "products of 10 bits": lambda output, normalizer: (output, normalizer + 1e-3),
    "not set": lambda output, normalizer: (output, torch.full_like(normalizer, math.nan)),
    "an output of others": lambda output, normalizer: (output.roll(1, 2), normalizer),
}

MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal from the start": Causal("start"),
    "causal from the end": Causal("end"),
    "causal, rows that see nothing": Causal(-7),
    "causal, all seen at last": Causal(30),
    "padded at the end": Padding.from_lengths(torch.tensor([50, 31]), 50),
    "padded at both ends": Padding(
        (torch.arange(50) > torch.tensor([[3], [9]])) & (torch.arange(50) < 45)
    ),
    "padded alike": Padding.from_lengths(torch.tensor([20, 20]), 50),
    "one sees nothing": Padding.from_lengths(torch.tensor([0, 20]), 50),
    "causal and padded": Causal("end") & Padding(torch.arange(50) > torch.tensor([[3], [19]])),
    "causal twice": Causal("end") & Causal("start"),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("shares_heads", [True, False])
def test_masks_are_made_of_blocks(
    mask: Mask | None, shares_heads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "ENGINES", (stand_in("right", shares_heads=shares_heads),))
    problem, value = problem_of(mask=mask, sinks=torch.randn(4))
    assert cuda.suits(problem, value)
    plan = cuda.choose(problem, value)
    assert plan is not None
    output, normalizer = cuda.forward(problem, value)
    expected = reference.forward(problem, value)
    torch.testing.assert_close(output, expected[0], atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(normalizer, expected[1], atol=2e-6, rtol=1e-5)


def test_a_square_is_one_block() -> None:
    for mask in (None, Causal()):
        stretches = stretches_of(problem_of(keys=40, mask=mask)[0])
        assert stretches is not None
        assert len(stretches) == 1
        assert stretches[0].is_whole(problem_of(keys=40)[0])


@pytest.mark.parametrize(
    "mask",
    [
        Window("end", before=3, after=0),
        Padding(torch.arange(50)[None].expand(2, 50) != 20),
        Padding(torch.ones(2, 50)) | Causal("end"),
    ],
)
def test_other_masks_are_not(mask: Mask) -> None:
    problem, value = problem_of(mask=mask)
    assert stretches_of(problem) is None
    assert cuda.choose(problem, value) is None


def test_nothing_seen_at_all_is_left_to_others() -> None:
    problem, value = problem_of(mask=Padding(torch.zeros(2, 50)))
    assert cuda.choose(problem, value) is None


@pytest.mark.parametrize("spoil", WRONG.values(), ids=WRONG.keys())
def test_a_kernel_that_is_wrong_is_named_once_and_left_alone(
    spoil: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = stand_in("wrong", spoil), stand_in("right")
    monkeypatch.setattr(cuda, "ENGINES", engines)
    problem, value = problem_of()
    with pytest.warns(UserWarning, match="PyTorch's wrong kernel gives another output or log"):
        plan = cuda.choose(problem, value)
    assert plan is not None
    assert plan.engine.name == "right"
    # No further warning, which would be an error here.
    output, _ = cuda.forward(problem, value)
    torch.testing.assert_close(output, reference.forward(problem, value)[0])
    monkeypatch.setattr(cuda, "ENGINES", engines[:1])
    assert cuda.choose(problem, value) is None


def test_each_kind_of_input_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "ENGINES", (stand_in("right"),))
    checked = []

    def count(*given: Any) -> bool:
        checked.append(given)
        return True

    monkeypatch.setattr(sampled, "is_right", count)
    for _ in range(2):
        for options in ({}, {"mask": Causal("end")}, {"dtype": torch.bfloat16}, {"queries": 128}):
            assert cuda.choose(*problem_of(**options)) is not None
    assert len(checked) == 4


def test_nothing_is_learnt_from_what_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "ENGINES", (stand_in("right"),))
    problem, value = problem_of()
    spoilt = value.clone()
    spoilt[0, 0, 3] = math.nan
    assert cuda.choose(problem, spoilt) is None
    assert cuda.choose(problem, value) is not None
    assert cuda.choose(problem, spoilt) is not None


@pytest.mark.parametrize(
    "options",
    [
        {"bias": torch.zeros(40, 50)},
        {"soft_cap": 2.0},
        {"scale": -1.0},
        {"scale": 0.0},
        {"dtype": torch.float64},
    ],
)
def test_what_they_do_not_know(options: dict[str, Any]) -> None:
    assert not cuda.suits(*problem_of(**options))


def test_half_precision_may_be_off_by_its_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "ENGINES", (stand_in("right"),))
    for dtype in (torch.bfloat16, torch.float16):
        problem, value = problem_of(dtype=dtype)
        assert cuda.choose(problem, value) is not None
        assert cuda.forward(problem, value)[0].dtype == dtype


@pytest.mark.parametrize("engine", ENGINES, ids=[engine.name for engine in ENGINES])
def test_what_they_are_called_with(engine: Engine) -> None:
    """PyTorch knows what these calls return without computing it: also where there is no GPU."""
    heads = 2 if engine.shares_heads else 4
    query = torch.empty(2, 4, 70, 16, device="meta", dtype=torch.bfloat16)
    key, value = torch.empty(2, 2, heads, 70, 16, device="meta", dtype=torch.bfloat16)
    output, normalizer = engine.run(query, key, value, True, 0.25)
    assert output.shape == query.shape
    assert (normalizer.shape, normalizer.dtype) == (query.shape[:3], torch.float32)
    assert not engine.takes(*torch.ones(3, 1, 2, 8, 8), True)


def test_vectors_begin_where_eight_numbers_can_be_read() -> None:
    plain = torch.randn(2, 3, 10, 24)
    for aligned in (plain, plain[:, :, 2:9], plain[..., 8:16], plain[:1, :1].transpose(1, 2)):
        assert cuda._aligned(aligned, aligned.shape[-1]) is aligned
    for given in (plain[..., 3:19], plain[..., 1:9], torch.randn(2, 3, 8, 10).mT[..., :8]):
        copied = cuda._aligned(given, 8 * (given.shape[-1] // 8))
        assert copied.is_contiguous()
        assert copied.storage_offset() == 0
        assert torch.equal(copied, given)
    assert cuda._aligned(plain[..., :5], 8)[..., 5:].abs().sum() == 0


def test_on_a_cpu_the_kernel_for_cpus_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "choose", None)
    problem, value = problem_of()
    assert fused.serves(problem, value)
    assert not cuda.serves(problem, value)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("engine", ENGINES, ids=[engine.name for engine in ENGINES])
def test_each_kernel_of_this_gpu(
    engine: Engine, mask: Mask | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "ENGINES", (engine,))
    problem, value = problem_of(mask=mask, dtype=dtype, device="cuda")
    plan = cuda.choose(problem, value)
    if plan is None:
        pytest.skip(f"the {engine.name} kernel does not take {dtype} with this mask on this GPU")
    output, normalizer = cuda.forward(problem, value)
    exact = reference.forward(problem.map_tensors(lambda tensor: tensor.double()), value.double())
    eps = max(torch.finfo(dtype).eps, 1e-5)
    torch.testing.assert_close(output.double(), exact[0], atol=2 * eps, rtol=2 * eps)
    torch.testing.assert_close(normalizer.double(), exact[1], atol=5e-5, rtol=3e-5)


@needs_gpu
@pytest.mark.parametrize("mask", [None, Causal()])
def test_attention_on_a_gpu(mask: Mask | None) -> None:
    inputs = [torch.randn(1, 4, 300, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    for tensor in inputs:
        tensor.requires_grad_()
    output, weights = heedmap.attention(*inputs, mask=mask)
    assert weights.backend == "fused"
    doubles = [tensor.detach().double().requires_grad_() for tensor in inputs]
    exact, exact_weights = heedmap.attention(*doubles, mask=mask)
    torch.testing.assert_close(output.double(), exact, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(
        weights.float().received().double(), exact_weights.received(), atol=1e-3, rtol=1e-4
    )
    up = torch.randn_like(exact)
    grads = torch.autograd.grad(output, inputs, up.bfloat16())
    for one, other in zip(grads, torch.autograd.grad(exact, doubles, up), strict=True):
        torch.testing.assert_close(one.double(), other, atol=5e-2, rtol=5e-2)
