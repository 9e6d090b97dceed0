"""Where numbers are large, rounded or mixed, the weights stay exact and the answers torch's own."""

import copy
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Documents, Padding, Visible
from heedmap.errors import ArgumentError, BudgetError, FrozenError, UnsupportedError
from heedmap.kernels import differentiable
from heedmap.nn import SelfAttention
from heedmap.precision import exactly

BACKENDS = ["auto", "tiles", "reference"]


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 64, 32)
    return query, key, value


Inputs = tuple[Tensor, Tensor, Tensor]


class TestLargeScores:
    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("factor", [1, 30, 100, 1000])
    def test_rows_sum_to_one(self, inputs: Inputs, backend: str, factor: int) -> None:
        query, key, value = inputs
        weights = heedmap.attention(query * factor, key * factor, value, backend=backend)[1]
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 64), atol=1e-6, rtol=0)
        assert float(weights.max()) <= 1 + 1e-6
        summary = weights.summarize()
        torch.testing.assert_close(summary.received, weights.received(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(summary.entropy, weights.entropy(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(weights[0, 1, 7].sum(), torch.tensor(1.0), atol=1e-6, rtol=0)

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min])
    def test_a_row_of_low_bias_is_a_row_like_any(
        self, inputs: Inputs, backend: str, low: float
    ) -> None:
        bias = torch.zeros(64, 64)
        bias[5] = low
        weights = heedmap.attention(*inputs, bias=bias, backend=backend)[1]
        query, key = inputs[0].double(), inputs[1].double()
        exact = torch.softmax(query @ key.mT / 32**0.5 + bias.double(), -1)
        torch.testing.assert_close(weights.to_dense().double(), exact, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 64), atol=1e-6, rtol=0)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_inputs_have_float32_weights(
        self, inputs: Inputs, dtype: torch.dtype
    ) -> None:
        query, key, value = (tensor.to(dtype) for tensor in inputs)
        weights = heedmap.attention(query, key, value)[1].float().to_dense()
        exact = torch.softmax(query.double() @ key.double().mT / 32**0.5, -1)
        assert float(((weights - exact) / exact).abs().max()) < 5e-6

    @pytest.mark.parametrize("scale", [-1.0, 0.0])
    def test_causal_with_a_scale_that_is_not_positive(self, inputs: Inputs, scale: float) -> None:
        output, weights = heedmap.attention(*inputs, mask=Causal(), scale=scale)
        assert bool(torch.isfinite(output).all())
        torch.testing.assert_close(weights @ inputs[2], output, atol=1e-5, rtol=1e-4)


class TestSinksOfLargeScores:
    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("large", [0.0, 1e4])
    def test_a_sink_keeps_its_share(self, backend: str, large: float) -> None:
        query, key = torch.full((1, 1, 2, 1), 1.0), torch.full((1, 1, 3, 1), large)
        visible = Visible(torch.tensor([[True, True, True], [False, False, False]]))
        sinks, options = torch.tensor([large]), {"mask": visible, "backend": backend}
        weights = heedmap.attention(query, key, key, sinks=sinks, scale=1.0, **options)[1]
        expected = torch.tensor([[[[0.25] * 3, [0.0] * 3]]])
        torch.testing.assert_close(weights.to_dense(), expected)
        torch.testing.assert_close(weights.sum(-1), expected.sum(-1))
        torch.testing.assert_close(weights.summarize().received, expected.sum(-2))


class TestHiddenByBias:
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_nan_behind_a_bias_of_minus_infinity_stays_there(
        self, inputs: Inputs, backend: str
    ) -> None:
        query, key, value = inputs
        bias = torch.zeros(64, 64)
        bias[:, 3] = -math.inf
        expected = heedmap.attention(query, key, value, mask=Visible(bias == 0))[0]
        key, value = key.clone(), value.clone()
        key[:, :, 3], value[:, :, 3] = math.nan, math.inf
        output, weights = heedmap.attention(query, key, value, bias=bias, backend=backend)
        torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-4)
        assert bool((weights[..., 3].clone() == 0).all())

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_a_row_without_keys_and_without_sink(self, inputs: Inputs, backend: str) -> None:
        nothing = Visible(torch.zeros(64, 64).bool())
        sinks = torch.tensor([-math.inf, 0.0])
        output, weights = heedmap.attention(*inputs, mask=nothing, sinks=sinks, backend=backend)
        assert bool((output == 0).all())
        assert bool((weights.sum(-1) == 0).all())


class TestAutocast:
    def test_sums_are_not_rounded(self, inputs: Inputs) -> None:
        query, key, value = inputs
        expected, weights = heedmap.attention(query * 4, key * 4, value)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, inside = heedmap.attention(query * 4, key * 4, value)
            torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(inside.sum(-1), torch.ones(1, 2, 64), atol=1e-6, rtol=0)
            torch.testing.assert_close(inside @ value, output, atol=1e-4, rtol=1e-4)
            assert torch.equal(inside.to_dense(), weights.to_dense())

    def test_the_module_follows_it(self) -> None:
        layer, x = SelfAttention(4, 8), torch.randn(2, 9, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, weights = layer(x)
        assert output.dtype == torch.bfloat16
        torch.testing.assert_close(weights.float().sum(-1), torch.ones(2, 9), atol=1e-5, rtol=0)


class TestCoarseProducts:
    """What PyTorch is told about products of float32: on a GPU that would be TF32, with 10 bits."""

    @pytest.fixture(autouse=True)
    def _as_it_was(self) -> Iterator[None]:
        settings = [("generic", "all"), ("cuda", "matmul"), ("mkldnn", "matmul")]
        before = [torch._C._get_fp32_precision_getter(*by) for by in settings]
        yield
        torch.set_float32_matmul_precision("highest")
        for by, precision in zip(settings, before, strict=True):
            torch._C._set_fp32_precision_setter(*by, precision)

    @pytest.fixture
    def found(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
        """Return what is set while attention computes."""
        found, run = [], differentiable.run

        def look(*given: Any) -> Any:
            found.append(self.settings())
            return run(*given)

        monkeypatch.setattr(differentiable, "run", look)
        return found

    def settings(self) -> tuple[str, str]:
        backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
        return tuple(backend.fp32_precision for backend in backends)

    @pytest.mark.parametrize("backend", ["fused", "tiles", "reference"])
    @pytest.mark.parametrize("asked", ["high", "medium"])
    def test_of_all_backends(
        self, inputs: Inputs, asked: str, backend: str, found: list[Any]
    ) -> None:
        torch.set_float32_matmul_precision(asked)
        heedmap.attention(*inputs, backend=backend)
        assert found == [("ieee", "ieee")]
        assert torch.get_float32_matmul_precision() == asked
        assert torch.backends.cuda.matmul.allow_tf32

    @pytest.mark.parametrize("backend", ["fused", "tiles", "reference"])
    def test_of_one_backend(self, inputs: Inputs, backend: str, found: list[Any]) -> None:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        heedmap.attention(*inputs, backend=backend)
        assert found == [("ieee", "ieee")]
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"

    @pytest.mark.parametrize("asked", ["high", "medium"])
    def test_of_the_kernel_that_is_chosen(self, inputs: Inputs, asked: str) -> None:
        """Ours multiplies for itself, and nobody has to set anything for it."""
        query = inputs[0].clone().requires_grad_()

        def numbers() -> list[Tensor]:
            output, weights = heedmap.attention(query, *inputs[1:])
            found = heedmap.attention(*inputs, keep=heedmap.Summary(top=3, pool=(9, 9)))[1]
            assert found.pooled is not None
            gradient = torch.autograd.grad(output.square().sum(), query)[0]
            return [output, weights.log_normalizer, gradient, found.received, found.pooled]

        before = numbers()
        torch.set_float32_matmul_precision(asked)
        for exact, coarse in zip(before, numbers(), strict=True):
            assert torch.equal(exact, coarse)

    def test_after_an_error(self, inputs: Inputs) -> None:
        torch.set_float32_matmul_precision("high")
        with pytest.raises(RuntimeError, match="of the test"), exactly():
            raise RuntimeError("of the test")
        assert torch.get_float32_matmul_precision() == "high"


class TestModes:
    def test_first_read_without_gradients_then_with(self, inputs: Inputs) -> None:
        for block in (torch.no_grad, torch.inference_mode):
            query = inputs[0].clone().requires_grad_()
            weights = AttentionMap.from_factors(query, inputs[1])
            with block():
                weights.sum(-2)
            weights.square().sum().backward()
            assert query.grad is not None

    def test_made_without_gradients_has_none(self, inputs: Inputs) -> None:
        query = inputs[0].clone().requires_grad_()
        for block in (torch.no_grad, torch.inference_mode):
            with block():
                output, weights = heedmap.attention(query, *inputs[1:])
            assert not output.requires_grad
            assert not weights.requires_grad
            assert weights.numpy().shape == (1, 2, 64, 64)
            assert weights[0, 0].topk(2).values.shape == (64, 2)

    def test_a_gradient_of_a_gradient_keeps_to_the_budget(self, inputs: Inputs) -> None:
        query = inputs[0].clone().requires_grad_()
        output = heedmap.attention(query, *inputs[1:])[0]
        with heedmap.dense_budget(1000), pytest.raises(BudgetError, match="gradient of a gradient"):
            torch.autograd.grad(output.sum(), query, create_graph=True)


class TestWrites:
    def test_into_what_a_map_stands_on(self, inputs: Inputs) -> None:
        bias, table = torch.zeros(64, 64), torch.ones(64, 64).bool()
        for options, written in (({"bias": bias}, bias), ({"mask": Visible(table)}, table)):
            weights = heedmap.attention(*inputs, **options)[1]
            again = copy.deepcopy(weights)
            written[0] = 0
            with pytest.raises(UnsupportedError, match="written into"):
                weights.sum(-1)
            torch.testing.assert_close(again.sum(-1), torch.ones(1, 2, 64))

    def test_into_marks_and_numbers_change_nothing(self, inputs: Inputs) -> None:
        marks, numbers = torch.ones(1, 64).bool(), torch.zeros(1, 64).long()
        for mask, written in ((Padding(marks), marks), (Documents(numbers), numbers)):
            weights = heedmap.attention(*inputs, mask=mask)[1]
            written[:, 3:] = 0 if written.dtype == torch.bool else 7
            torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 64))

    @pytest.mark.parametrize(
        "write", [F.silu, F.hardtanh, F.selu, F.mish, F.relu, F.dropout], ids=lambda f: f.__name__
    )
    def test_inplace_functions_are_refused(
        self, inputs: Inputs, write: Callable[..., Tensor]
    ) -> None:
        weights = heedmap.attention(*inputs)[1]
        with pytest.raises(FrozenError):
            write(weights, inplace=True)

    def test_a_clone_shares_nothing(self) -> None:
        dense = torch.rand(3, 4, 4, requires_grad=True)
        for cloned in (
            AttentionMap.from_weights(dense)[1].clone(),
            AttentionMap.from_weights(dense).mT.clone(),
            AttentionMap.from_weights(dense).to_dense(),
        ):
            with torch.no_grad():
                cloned.fill_(9)
        assert not bool((dense == 9).any())


SPELLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "axis, keepdims": lambda w: w.amax(axis=-1, keepdims=True),
    "input=": lambda w: torch.sum(input=w, dim=-1),
    "input=, other=": lambda w: torch.matmul(input=w, other=torch.ones(64, 2)),
    "exp(input=)": lambda w: torch.exp(input=w),
    "mul(other=)": lambda w: torch.mul(w, other=torch.ones(1, 2, 64, 64)),
    "clamp(min=tensor)": lambda w: w.clamp(min=torch.full((64, 1), 0.02)),
    "clamp_min(self)": lambda w: torch.clamp_min(w, w),
    "relu": lambda w: F.relu(w),
    "squeeze(dim=)": lambda w: w.squeeze(dim=0),
    "permute(dims=)": lambda w: w.permute(dims=(1, 0, 2, 3)),
    "flip(dims=)": lambda w: torch.flip(w, dims=(-1,)),
    "argmax(axis=)": lambda w: w.argmax(axis=-1),
    "sum([])": lambda w: w.sum([]),
    "numpy index": lambda w: w[..., np.array([0, 1])],
    "numpy marks": lambda w: w[..., np.arange(64) % 2 == 0],
    "numpy pairs": lambda w: w[0][np.arange(2), np.arange(2)],
    "numpy number": lambda w: w * np.float32(2),
    "linalg.norm": lambda w: torch.linalg.norm(w, ord=2, dim=(-2, -1)),
    "older reduction": lambda w: F.mse_loss(w, torch.zeros(1, 2, 64, 64), reduction="sum"),
    "whole numbers, bitwise": lambda w: ~(w * 100).long(),
    "type_as": lambda w: w.type_as(torch.zeros(1).double()),
    "to(other)": lambda w: w.to(torch.zeros(1).double()),
    "top none": lambda w: w.topk(0).values,
    "chain times values": lambda w: (w @ w) @ torch.ones(64, 2),
    "chain summed": lambda w: (w @ w).sum(-1),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_torchs_spellings(inputs: Inputs, spelling: str) -> None:
    weights = heedmap.attention(*inputs)[1]
    expected = SPELLINGS[spelling](weights.to_dense())
    found = SPELLINGS[spelling](weights)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    found = found.to_dense() if isinstance(found, AttentionMap) else found
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


OF_NOTHING: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda w: w[:0].sum(),
    "sum of none": lambda w: w[:0].sum(0),
    "mean of none": lambda w: w[:0].mean(0),
    "flatten": lambda w: w[..., :0].flatten(0, 1),
    "split": lambda w: w[:0].split(2)[0],
    "chunk": lambda w: w[:0].chunk(3)[2],
}


@pytest.mark.parametrize("case", OF_NOTHING)
def test_where_there_are_no_maps_or_no_keys(inputs: Inputs, case: str) -> None:
    weights = heedmap.attention(*inputs)[1]
    found, expected = OF_NOTHING[case](weights), OF_NOTHING[case](weights.to_dense())
    found = found.to_dense() if isinstance(found, AttentionMap) else found
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda w: w.unsqueeze(7),
        lambda w: w.squeeze(5),
        lambda w: torch.cat([w, w], 7),
        lambda w: torch.stack([w, w], 7),
        lambda w: w.narrow(-1, 60, 8),
        lambda w: w.narrow(-1, 65, 0),
        lambda w: w.narrow(-1, 0, -1),
        lambda w: w[..., ::-1],
        lambda w: w.index_select(-1, torch.tensor([-1])),
        lambda w: w.split(0),
        lambda w: w.chunk(0),
        lambda w: w.unbind(4),
        lambda w: w.permute(0, 1, 2, 7),
        lambda w: w.permute(0, 1, 2, 2),
        lambda w: w[0, 0, 0].mT,
        lambda w: torch.cat([w, w[:, :, :3]]),
        lambda w: w[:0].amax(0),
        lambda w: w.sum((0, 0)),
        lambda w: w.flatten(2, 1),
        lambda w: torch.mm(w[0], torch.ones(64, 2)),
        lambda w: torch.bmm(w[0], torch.ones(64, 2)),
        lambda w: w @ torch.ones(64, 2).double(),
        lambda w: w & w,
        lambda w: F.mse_loss(w, w, reduction="typo"),
    ],
)
def test_what_torch_refuses_is_refused(inputs: Inputs, wrong: Callable[[Tensor], object]) -> None:
    weights = heedmap.attention(*inputs)[1]
    with pytest.raises((IndexError, RuntimeError, ValueError)) as refused:
        wrong(weights.to_dense())
    with pytest.raises(refused.type):
        wrong(weights)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_map_equals_itself(inputs: Inputs, dtype: torch.dtype) -> None:
    weights = AttentionMap.from_factors(inputs[0].to(dtype), inputs[1].to(dtype))
    dense = weights.to_dense()
    assert torch.equal(weights, dense)
    assert torch.allclose(weights, dense)
    assert int((weights == weights.amax(-1, keepdim=True)).sum()) >= 128


def test_numbers_of_numpy_are_saved_as_numbers(inputs: Inputs) -> None:
    stored = io.BytesIO()
    torch.save(heedmap.attention(*inputs)[1] * np.float32(2), stored)
    stored.seek(0)
    torch.testing.assert_close(torch.load(stored).sum(-1), torch.full((1, 2, 64), 2.0))


@pytest.mark.bad_input
@pytest.mark.parametrize("alignment", [1.5, torch.tensor(0), np.int64(0), "middle"])
def test_an_alignment_that_is_no_number(alignment: object) -> None:
    with pytest.raises(ArgumentError, match="alignment"):
        Causal(alignment)
