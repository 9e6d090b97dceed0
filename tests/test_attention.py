"""What `attention` promises: exact, absolute masks, clear errors, the memory of the output."""

import math
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Documents, Padding, Visible, Window
from heedmap.errors import ArgumentError, DTypeError, HeedmapError, ShapeError

from .derivatives import require_first_derivatives

VALID = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])


def draw(*shape: int, seed: int = 0, **options: Any) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), **options)


def inputs(queries: int = 6, keys: int = 6, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    return (
        draw(2, 3, queries, 4, seed=1, **options),
        draw(2, 3, keys, 4, seed=2, **options),
        draw(2, 3, keys, 5, seed=3, **options),
    )


class TestAnswers:
    def test_equals_pytorch(self) -> None:
        query, key, value = inputs()
        output, weights = heedmap.attention(query, key, value)
        expected = F.scaled_dot_product_attention(query, key, value)
        torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(weights @ value, output, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 6))

    @pytest.mark.parametrize("rank", [2, 3, 4])
    def test_leading_dimensions_may_be_left_out(self, rank: int) -> None:
        query, key, value = (t[(0,) * (4 - rank)] for t in inputs())
        output, weights = heedmap.attention(query, key, value)
        assert output.shape == (*query.shape[:-1], 5)
        assert weights.shape == (*query.shape[:-1], 6)
        torch.testing.assert_close(weights.to_dense() @ value, output, atol=1e-6, rtol=1e-5)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
    def test_number_types(self, dtype: torch.dtype) -> None:
        query, key, value = (t.to(dtype) for t in inputs())
        output, weights = heedmap.attention(query, key, value, mask=Causal())
        assert output.dtype == weights.dtype == dtype
        exact = heedmap.attention(query.double(), key.double(), value.double(), mask=Causal())[1]
        error = (weights.double().to_dense() - exact.to_dense()).abs().max()
        assert error < (1e-12 if dtype == torch.float64 else 1e-6)

    @pytest.mark.parametrize("scale", [0.0, -3.0, 1e-6, 2.5])
    def test_any_finite_scale(self, scale: float) -> None:
        query, key, value = inputs(dtype=torch.float64)
        output, weights = heedmap.attention(query, key, value, scale=scale)
        expected = torch.softmax(query @ key.mT * scale, -1)
        torch.testing.assert_close(weights.to_dense(), expected)
        torch.testing.assert_close(output, expected @ value)

    def test_a_bool_tensor_is_what_may_be_seen(self) -> None:
        query, key, value = inputs()
        table = draw(2, 1, 6, 6) > 0
        output, _ = heedmap.attention(query, key, value, mask=table)
        expected = F.scaled_dot_product_attention(query, key, value, attn_mask=table)
        torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)

    def test_looking_changes_nothing_and_repeats_to_the_bit(self) -> None:
        query, key, value = inputs()
        first, weights = heedmap.attention(query, key, value, mask=Padding(VALID))
        weights.summarize()
        second, again = heedmap.attention(query, key, value, mask=Padding(VALID))
        assert torch.equal(first, second)
        assert torch.equal(weights.to_dense(), again.to_dense())

    def test_strides_do_not_matter(self) -> None:
        query, key, value = inputs()
        expected = heedmap.attention(query, key, value)[0]
        for change in (
            lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
            lambda t: t.mT.contiguous().mT,
            lambda t: torch.stack([t, t], -1)[..., 0],
            lambda t: torch.cat([t, t], 2)[:, :, : t.shape[2]],
        ):
            output, weights = heedmap.attention(change(query), change(key), change(value))
            torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(weights @ value, expected, atol=1e-6, rtol=1e-5)
        shared = key[:, :1].expand(-1, 3, -1, -1), value[:, :1].expand(-1, 3, -1, -1)
        found = heedmap.attention(query, *shared)[0]
        torch.testing.assert_close(found, heedmap.attention(query, key[:, :1], value[:, :1])[0])


class TestMasksAreAbsolute:
    @pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30])
    @pytest.mark.parametrize("options", [{}, {"soft_cap": 3.0}, {"backend": "tiles"}], ids=str)
    def test_what_stands_in_padding_reaches_nothing(
        self, junk: float, options: dict[str, Any]
    ) -> None:
        clean = [t.requires_grad_() for t in inputs(dtype=torch.float64)]
        dirty = [t.detach().clone() for t in clean]
        for tensor in dirty[1:]:
            tensor[1, :, 3:] = junk
        dirty = [t.requires_grad_() for t in dirty]
        results = []
        for query, key, value in (clean, dirty):
            mask = Padding(VALID) & Causal()
            output, weights = heedmap.attention(query, key, value, mask=mask, **options)
            loss = output.square().sum() + weights.entropy().sum() + weights.topk(2).values.sum()
            results.append(
                (output, weights.to_dense(), *torch.autograd.grad(loss, [query, key, value]))
            )
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)
        assert bool((results[1][1][1, :, :, 3:] == 0).all())

    @pytest.mark.parametrize("junk", [math.nan, math.inf])
    @pytest.mark.parametrize("backend", ["auto", "tiles"])
    def test_what_stands_in_the_future_reaches_no_earlier_query(
        self, junk: float, backend: str
    ) -> None:
        query, key, value = inputs()
        expected, clean = heedmap.attention(query, key, value, mask=Causal())
        early = clean[..., :4, :].clone()
        key[:, :, 4], value[:, :, 4] = junk, junk
        query.requires_grad_()
        output, weights = heedmap.attention(query, key, value, mask=Causal(), backend=backend)
        torch.testing.assert_close(output[:, :, :4], expected[:, :, :4], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(weights[..., :4, :].clone(), early, atol=1e-6, rtol=1e-5)
        assert bool(output[:, :, 4:].isnan().all())
        assert bool((weights[..., 4, 5].clone() == 0).all())
        loss = output[:, :, :4].sum() + weights[..., :4, :].entropy().sum()
        (gradient,) = torch.autograd.grad(loss, [query])
        assert bool(torch.isfinite(gradient[:, :, :4]).all())

    def test_a_query_that_sees_nothing_has_zeros(self) -> None:
        query, key, value = (t.requires_grad_() for t in inputs())
        mask = Padding(torch.tensor([[0] * 6, [0, 0, 1, 1, 1, 1]])) & Causal()
        output, weights = heedmap.attention(query, key, value, mask=mask)
        dead = torch.tensor([[True] * 6, [True, True, False, False, False, False]])
        dead = dead[:, None].expand(2, 3, 6)
        assert bool((output[dead] == 0).all())
        assert bool((weights.sum(-1)[dead] == 0).all())
        torch.testing.assert_close(weights.sum(-1)[~dead], torch.ones(12))
        assert bool((weights.log_normalizer[dead] == -math.inf).all())
        assert bool((weights.entropy()[dead] == 0).all())
        loss = output.sum() + weights.entropy().sum() + weights.received().square().sum()
        for gradient in torch.autograd.grad(loss, [query, key, value]):
            assert bool(torch.isfinite(gradient).all())
            assert bool((gradient[0] == 0).all())

    @pytest.mark.parametrize("masked_score", [1e9, 3e38])
    def test_no_score_is_high_enough(self, masked_score: float) -> None:
        query = torch.ones(1, 1)
        key = torch.tensor([[-2e9], [masked_score]])
        mask = Padding(torch.tensor([[1, 0]]))
        weights = heedmap.attention(query, key, key, mask=mask, scale=1.0)[1]
        assert weights.tolist() == [[1.0, 0.0]]

    def test_keys_not_visible_can_be_added_without_any_change(self) -> None:
        query, key, value = inputs()
        output, weights = heedmap.attention(query, key, value)
        longer = [torch.cat([t, draw(2, 3, 9, t.shape[-1], seed=9)], 2) for t in (key, value)]
        valid = torch.tensor([[1] * 6 + [0] * 9] * 2)
        found, more = heedmap.attention(query, *longer, mask=Padding(valid))
        torch.testing.assert_close(found, output, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(
            more[..., :6].to_dense(), weights.to_dense(), atol=1e-6, rtol=1e-5
        )

    def test_a_padded_batch_equals_each_sample_alone(self) -> None:
        query, key, value = inputs(dtype=torch.float64)
        output = heedmap.attention(query, key, value, mask=Padding(VALID))[0]
        alone = heedmap.attention(query[1:], key[1:, :, :3], value[1:, :, :3])[0]
        torch.testing.assert_close(output[1:], alone, atol=1e-12, rtol=1e-12)


BAD: dict[str, tuple[Callable[[], Any], type[HeedmapError], str]] = {
    "lengths": (
        lambda: heedmap.attention(draw(4, 8), draw(5, 8), draw(6, 8)),
        ShapeError,
        "same number of positions; got 5 and 6",
    ),
    "widths": (
        lambda: heedmap.attention(draw(4, 8), draw(5, 7), draw(5, 7)),
        ShapeError,
        "head_dim",
    ),
    "batches": (
        lambda: heedmap.attention(draw(2, 4, 8), draw(3, 4, 8), draw(3, 4, 8)),
        ShapeError,
        "batch size; got 2 and 3",
    ),
    "heads": (
        lambda: heedmap.attention(draw(1, 4, 3, 8), draw(1, 3, 3, 8), draw(1, 3, 3, 8)),
        ShapeError,
        "multiple",
    ),
    "no heads": (
        lambda: heedmap.attention(*[draw(1, 0, 3, 8)] * 3),
        ShapeError,
        "at least 1",
    ),
    "value heads": (
        lambda: heedmap.attention(draw(1, 4, 3, 8), draw(1, 4, 3, 8), draw(1, 2, 3, 8)),
        ShapeError,
        "key and value must have the same number of heads; got 4 and 2",
    ),
    "ranks": (
        lambda: heedmap.attention(draw(1, 3, 8), draw(3, 8), draw(3, 8)),
        ShapeError,
        "dimensions",
    ),
    "five dimensions": (
        lambda: heedmap.attention(*[draw(1, 1, 1, 3, 8)] * 3),
        ShapeError,
        "Merge further leading dimensions into the batch",
    ),
    "whole numbers": (
        lambda: heedmap.attention(*[torch.ones(3, 8).long()] * 3),
        DTypeError,
        r"query must be float64, float32, bfloat16 or float16; got torch\.int64",
    ),
    "mixed types": (
        lambda: heedmap.attention(draw(3, 8), draw(3, 8).double(), draw(3, 8)),
        DTypeError,
        "number type",
    ),
    "not a tensor": (
        lambda: heedmap.attention([[1.0]], draw(1, 1), draw(1, 1)),
        DTypeError,
        "list",
    ),
    "sparse": (
        lambda: heedmap.attention(draw(3, 8), draw(3, 8).to_sparse(), draw(3, 8)),
        DTypeError,
        "strided",
    ),
    "scale": (lambda: heedmap.attention(*[draw(3, 8)] * 3, scale=math.nan), ArgumentError, "scale"),
    "soft cap": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, soft_cap=0.0),
        ArgumentError,
        r"soft_cap must be a finite number above 0; got 0\.0",
    ),
    "bias of +inf": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, bias=torch.full((3, 3), math.inf)),
        ArgumentError,
        "inf",
    ),
    "bias of NaN": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, bias=torch.full((3, 3), math.nan)),
        ArgumentError,
        "NaN",
    ),
    "bias of marks": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, bias=torch.ones(3, 3).bool()),
        DTypeError,
        "mask=",
    ),
    "bias of another shape": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, bias=torch.ones(3, 4)),
        ShapeError,
        r"bias must fit \[batch, heads, query, key",
    ),
    "sinks": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, sinks=torch.ones(2)),
        ShapeError,
        r"sinks must be \[heads\] = \[1\]; got \[2\]",
    ),
    "mask of numbers": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, mask=torch.ones(3, 3)),
        DTypeError,
        "Padding",
    ),
    "mask that could be two things": (
        lambda: heedmap.attention(*[draw(3, 3, 8)] * 3, mask=torch.ones(3, 3).bool()),
        ArgumentError,
        "say what it is",
    ),
    "mask that is none": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, mask="causal"),
        ArgumentError,
        "str",
    ),
    "padding of other numbers": (lambda: Padding(torch.tensor([[1.0, 0.5]])), ArgumentError, "0.5"),
    "padding of −10000": (lambda: Padding(torch.tensor([[0.0, -1e4]])), ArgumentError, "bias="),
    "padding of another length": (
        lambda: heedmap.attention(*[draw(2, 3, 8)] * 3, mask=Padding(torch.ones(2, 4))),
        ShapeError,
        r"\[2, 3\]",
    ),
    "padding of three dimensions": (lambda: Padding(torch.ones(1, 2, 3)), ShapeError, "batch, key"),
    "causal without alignment": (
        lambda: heedmap.attention(draw(2, 8), draw(5, 8), draw(5, 8), mask=Causal()),
        ArgumentError,
        "alignment",
    ),
    "alignment": (lambda: Causal("middle"), ArgumentError, "middle"),
    "window": (lambda: Window(before=-1), ArgumentError, "before"),
    "documents": (
        lambda: heedmap.attention(*[draw(1, 3, 8)] * 3, mask=Documents(torch.zeros(1, 4).long())),
        ShapeError,
        "query_ids",
    ),
    "documents of fractions": (
        lambda: heedmap.attention(*[draw(1, 3, 8)] * 3, mask=Documents(torch.zeros(1, 3))),
        DTypeError,
        "whole",
    ),
    "table": (
        lambda: heedmap.attention(*[draw(2, 3, 8)] * 3, mask=Visible(torch.ones(2, 3).bool())),
        ShapeError,
        r"\[query, key\] = \[3, 3\]",
    ),
    "table of numbers": (lambda: Visible(torch.ones(3, 3)), DTypeError, "bool"),
    "backend": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, backend="cuda"),
        ArgumentError,
        "backend",
    ),
    "backend that cannot": (
        lambda: heedmap.attention(*[draw(3, 8)] * 3, soft_cap=1.0, backend="fused"),
        ArgumentError,
        "soft-cap",
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_clear_line(case: str) -> None:
    call, error, words = BAD[case]
    with pytest.raises(error, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


class TestGradients:
    @pytest.mark.parametrize(
        "question",
        [
            lambda w: w.entropy(),
            lambda w: w.received(),
            lambda w: w.topk(2).values,
            lambda w: w.pool(2, 2),
            lambda w: w.amax(-1),
            lambda w: w[:, 0, 1:, 1].clone(),
            lambda w: w.diagonal(dim1=-2, dim2=-1),
            lambda w: w.mean(1).sum(-2),
            lambda w: w.log_normalizer.masked_fill(w.sum(-1) == 0, 0),
            lambda w: w @ torch.ones(4, 2, dtype=torch.float64),
            lambda w: w.to_dense(),
        ],
    )
    def test_of_whatever_is_asked(self, question: Callable[[AttentionMap], Tensor]) -> None:
        query, key = (draw(1, 2, 4, 3, seed=s, dtype=torch.float64) for s in (1, 2))
        bias = draw(1, 2, 1, 4, seed=3, dtype=torch.float64)
        mask = Padding(torch.tensor([[0, 1, 1, 1]])) & Causal()

        def call(query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
            return question(AttentionMap.from_factors(query, key, mask=mask, bias=bias))

        leaves = tuple(t.requires_grad_() for t in (query, key, bias))
        require_first_derivatives(call, leaves)

    def test_a_loss_on_each_can_be_sent_back_apart(self) -> None:
        query, key, value = (t.requires_grad_() for t in inputs())
        output, weights = heedmap.attention(query, key, value)
        output.sum().backward()
        weights.entropy().sum().backward()
        weights.received().square().sum().backward()
        assert query.grad is not None

    def test_with_respect_to_the_weights(self) -> None:
        query, key, value = (t.requires_grad_() for t in inputs())
        output, weights = heedmap.attention(query, key, value)
        found = torch.autograd.grad(output.square().sum(), [weights, query])[0]
        dense = weights.to_dense().detach().requires_grad_()
        expected = torch.autograd.grad((dense @ value).square().sum(), [dense])[0]
        assert isinstance(found, AttentionMap)
        torch.testing.assert_close(found.to_dense(), expected, atol=1e-5, rtol=1e-4)

    def test_a_loss_that_also_reads_the_weights_is_refused(self) -> None:
        query, key, value = (t.requires_grad_() for t in inputs())
        output, weights = heedmap.attention(query, key, value)
        for read in (weights.entropy(), weights[:, 0].mean(-1), weights.topk(2).values):
            loss = output.sum() + read.sum()
            with pytest.raises(HeedmapError, match="by the output alone"):
                torch.autograd.grad(loss, [weights], retain_graph=True)
        loss = output.sum() + weights.detach().entropy().sum()
        assert torch.autograd.grad(loss, [weights])[0].shape == weights.shape

    def test_what_has_no_such_gradient_says_so(self) -> None:
        query, key, value = (t.requires_grad_() for t in inputs())
        output, weights = heedmap.attention(query, key, value)
        for held in (weights.mean(1), weights[0], AttentionMap.from_factors(query, key)):
            with pytest.raises(HeedmapError, match="whole map"):
                torch.autograd.grad(output.sum(), [held], retain_graph=True)
        with pytest.raises(HeedmapError, match=r"autograd\.grad"):
            _ = weights.grad


MEMORY = {
    "rows, a block and repr at 100,000": """
        query, key = torch.randn(2, 1, 1, 100_000, 64)
        before = peak()
        weights = heedmap.AttentionMap.from_factors(query, key)
        rows = torch.arange(0, 100_000, 2_000)
        assert torch.isfinite(weights[0, 0, rows].sum(-1)).all()
        block = weights[0, 0, 5_000:6_000, 7_000:8_000].to_dense()
        assert block.shape == (1000, 1000)
        assert "100000" in repr(weights)
    """,
    "a summary at 16,384": """
        query, key, value = torch.randn(3, 1, 1, 16_384, 64)
        before = peak()
        weights = heedmap.attention(query, key, value)[1]
        summary = weights.summarize(top=8, pool=(512, 512))
        assert summary.pooled.shape == (1, 1, 512, 512)
        torch.testing.assert_close(summary.received.sum(), torch.tensor(16_384.0))
    """,
    "output and summary in one call at 32,768": """
        query, key, value = torch.randn(3, 1, 1, 32_768, 64)
        before, asked = peak(), heedmap.Summary(pool=(512, 512))
        output, summary = heedmap.attention(query, key, value, keep=asked)
        assert torch.isfinite(output).all()
        torch.testing.assert_close(summary.received.sum(), torch.tensor(32_768.0))
    """,
    "a window over 65,537 positions": """
        query, key, value = torch.randn(3, 1, 1, 65_537, 8)
        before = peak()
        mask = heedmap.Causal() & heedmap.Window(before=127)
        output, weights = heedmap.attention(query, key, value, mask=mask)
        assert torch.isfinite(output).all()
        torch.testing.assert_close(weights[0, 0, -1, -128:].sum(), torch.tensor(1.0))
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MEMORY)
def test_memory(case: str) -> None:
    head = """
        import torch, heedmap
        # The kernel's other figure, ru_maxrss, is inherited from the process that starts this one.
        def peak():
            status = open("/proc/self/status").read()
            return int(status.split("VmHWM:")[1].split()[0]) / 1024
        torch.manual_seed(0)
        small = torch.randn(3, 1, 1, 64, 8)
        heedmap.attention(*small)[1].summarize(top=2, pool=(4, 4))
    """
    tail = "print(peak() - before)"
    program = "\n".join(textwrap.dedent(part) for part in (head, MEMORY[case], tail))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) < 300
