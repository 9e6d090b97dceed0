"""SelfAttention is the lesson's module, and nn.MultiheadAttention's equal."""

import contextlib
import importlib.util
import io
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedmap import AttentionMap
from heedmap.errors import ArgumentError, ShapeError, UnsupportedError
from heedmap.nn import SelfAttention

from .derivatives import require_first_derivatives


class LessonAttention(nn.Module):
    """The plain module that a lesson on self-attention writes, kept apart from the library."""

    def __init__(self, input_dim: int, attn_dim: int) -> None:
        super().__init__()
        self.attn_dim = attn_dim
        self.w_q = nn.Linear(input_dim, attn_dim, bias=False)
        self.w_k = nn.Linear(input_dim, attn_dim, bias=False)
        self.w_v = nn.Linear(input_dim, attn_dim, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        scores = self.w_q(x) @ self.w_k(x).mT / math.sqrt(self.attn_dim)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, -1e9)
        weights = F.softmax(scores, dim=-1)
        return weights @ self.w_v(x), weights


MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def test_same_seed_same_numbers() -> None:
    results = []
    for module in (LessonAttention, SelfAttention):
        torch.manual_seed(42)
        x = torch.randn(2, 5, 4)
        layer = module(input_dim=4, attn_dim=8)
        results.append((layer, *layer(x), *layer(x, mask=MASK)))
    lesson, ours = results
    assert [n for n, _ in ours[0].named_parameters()] == [
        n for n, _ in lesson[0].named_parameters()
    ]
    for mine, theirs in zip(ours[1:], lesson[1:], strict=True):
        torch.testing.assert_close(torch.as_tensor(mine.clone()), theirs, atol=1e-6, rtol=0)
    masked = ours[4]
    assert isinstance(masked, AttentionMap)
    assert bool((masked[1, :, 3:].clone() == 0).all())


def lesson_program() -> ModuleType | None:
    """Return the program of the lesson that lies beside the project, where it does."""
    for folder in Path(__file__).resolve().parents:
        path = folder / "shared" / "lesson" / "lesson.py"
        if path.exists():
            spec = importlib.util.spec_from_file_location("lesson_program", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return None


def test_the_lessons_main_runs_unchanged_with_our_module() -> None:
    program = lesson_program()
    if program is None:
        program = ModuleType("lesson_program")
        source = LESSON_MAIN
        exec(source, program.__dict__)
        program.SingleHeadSelfAttention = LessonAttention
    printed = []
    for module in (program.SingleHeadSelfAttention, SelfAttention):
        program.SingleHeadSelfAttention = module
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            program.main()
        lines = output.getvalue().splitlines()
        printed.append([line.split(", grad_fn")[0] for line in lines])
    assert printed[0] == printed[1]
    assert "True" in printed[0]


LESSON_MAIN = """
import torch

def main():
    torch.manual_seed(42)
    x = torch.randn(2, 5, 4)
    model = SingleHeadSelfAttention(input_dim=4, attn_dim=8)
    output, attn_weights = model(x)
    print(output.shape, attn_weights.shape)
    print(attn_weights[0])
    row_sums = attn_weights.sum(dim=-1)
    print(row_sums)
    print(torch.allclose(row_sums, torch.ones_like(row_sums), atol=1e-6))
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    output, attn_weights = model(x, mask=mask)
    print(attn_weights[1])
    print(attn_weights.sum(dim=-1))
"""


class TestMultiheadAttention:
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("kdim", [None, 6])
    def test_same_output_and_weights(self, bias: bool, kdim: int | None) -> None:
        torch.manual_seed(0)
        theirs = nn.MultiheadAttention(
            8, 2, bias=bias, kdim=kdim, vdim=kdim, batch_first=True
        ).eval()
        ours = SelfAttention.from_multihead_attention(theirs)
        x = torch.randn(3, 7, 8)
        context = x if kdim is None else torch.randn(3, 5, kdim)
        ignored = torch.zeros(3, context.shape[1]).bool()
        ignored[1, 2:] = True
        expected = theirs(x, context, context, ignored, average_attn_weights=False)
        found = ours(x, mask=~ignored, context=context)
        torch.testing.assert_close(found[0], expected[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(found[1].to_dense(), expected[1], atol=1e-6, rtol=1e-5)

    @pytest.mark.parametrize("kdim", [None, 6])
    def test_its_state_loads_and_a_wrong_one_does_not(self, kdim: int | None) -> None:
        theirs = nn.MultiheadAttention(8, 4, kdim=kdim, vdim=kdim)
        ours = SelfAttention(8, 8, num_heads=4, bias=True, output_dim=8, context_dim=kdim)
        ours.load_state_dict(theirs.state_dict())
        outer = nn.ModuleDict({"attention": ours})
        outer.load_state_dict({f"attention.{n}": t for n, t in theirs.state_dict().items()})
        with pytest.raises(RuntimeError, match="Unexpected key"):
            SelfAttention(8, 8, num_heads=4, output_dim=8).load_state_dict(theirs.state_dict())
        with pytest.raises(RuntimeError, match="size mismatch"):
            SelfAttention(4, 8, bias=True, output_dim=8).load_state_dict(
                nn.MultiheadAttention(8, 1).state_dict()
            )

    def test_what_is_frozen_stays_frozen(self) -> None:
        for frozen in (True, False):
            theirs = nn.MultiheadAttention(8, 2, bias=True).requires_grad_(not frozen)
            ours = SelfAttention.from_multihead_attention(theirs)
            for made in (ours, ours.to_multihead_attention()):
                assert {part.requires_grad for part in made.parameters()} == {not frozen}

    def test_added_keys_are_refused(self) -> None:
        for module in (
            nn.MultiheadAttention(8, 2, add_bias_kv=True),
            nn.MultiheadAttention(8, 2, add_zero_attn=True),
            nn.MultiheadAttention(8, 2, kdim=4, vdim=6),
        ):
            with pytest.raises(UnsupportedError):
                SelfAttention.from_multihead_attention(module)


class TestForms:
    def test_heads_have_maps_of_their_own_and_the_right_scale(self) -> None:
        torch.manual_seed(0)
        layer = SelfAttention(6, 8, num_heads=4, kv_heads=2, bias=True, output_dim=3)
        x = torch.randn(2, 5, 6)
        output, weights = layer(x)
        assert output.shape == (2, 5, 3)
        assert weights.shape == (2, 4, 5, 5)
        query = layer.w_q(x).unflatten(-1, (4, 2)).transpose(1, 2)
        key = layer.w_k(x).unflatten(-1, (2, 2)).transpose(1, 2).repeat_interleave(2, 1)
        expected = torch.softmax(query @ key.mT / math.sqrt(2), -1)
        torch.testing.assert_close(weights.to_dense(), expected, atol=1e-6, rtol=1e-5)

    def test_causal_and_padding_intersect(self) -> None:
        layer = SelfAttention(4, 8, causal=True)
        weights = layer(torch.randn(2, 5, 4), mask=MASK)[1].to_dense()
        hidden = ~(torch.ones(5, 5).tril().bool() & MASK.bool()[:, None])
        assert bool((weights[hidden] == 0).all())
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5))

    @pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
    def test_masks_of_any_number_type(self, dtype: torch.dtype) -> None:
        layer, x = SelfAttention(4, 8), torch.randn(2, 5, 4)
        assert torch.equal(layer(x, MASK.to(dtype))[0], layer(x, MASK)[0])

    def test_junk_in_padding_reaches_neither_output_nor_gradients(self) -> None:
        layer = SelfAttention(4, 8, num_heads=2)
        results = []
        for junk in (0.0, math.nan, math.inf):
            x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
            x[1, 3:] = junk
            output, weights = layer(x, MASK)
            loss = output[MASK.bool()].square().sum() + weights.entropy()[1, :, :3].sum()
            gradients = torch.autograd.grad(loss, list(layer.parameters()))
            results.append((output[MASK.bool()], *gradients))
        for other in results[1:]:
            for one, two in zip(results[0], other, strict=True):
                torch.testing.assert_close(one, two)

    @pytest.mark.parametrize("dropout", [0.0, 0.5])
    def test_junk_in_what_is_looked_at(self, dropout: float) -> None:
        layer, x = SelfAttention(4, 8, dropout=dropout), torch.randn(2, 7, 4)
        results = []
        for junk in (0.0, math.nan, -math.inf):
            context = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
            context[1, 3:] = junk
            output, _ = layer(x, MASK, context=context)
            assert bool(output.isfinite().all())
            results.append(torch.autograd.grad(output.sum(), list(layer.parameters())))
        for found in results[1:]:
            assert all(bool(gradient.isfinite().all()) for gradient in found)
            if not dropout:
                torch.testing.assert_close(found, results[0])

    def test_a_single_sample_is_padded_too(self) -> None:
        layer, x = SelfAttention(4, 8), torch.randn(1, 5, 4)
        weights = layer(x, torch.tensor([[1, 1, 0, 0, 0]]))[1]
        assert bool((weights[..., 2:].to_dense() == 0).all())


class TestDropout:
    def test_only_while_training_and_not_on_the_map(self) -> None:
        torch.manual_seed(0)
        layer, x = SelfAttention(4, 8, num_heads=2, dropout=0.5), torch.randn(2, 50, 4)
        dropped, weights = layer(x)
        assert not torch.equal(dropped, layer(x)[0])
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 50))
        layer.eval()
        assert torch.equal(layer(x)[0], layer(x)[0])

    def test_the_gradient_drops_what_the_output_dropped(self) -> None:
        torch.manual_seed(0)
        layer = SelfAttention(4, 8, dropout=0.5).double()
        x = torch.randn(1, 6, 4, dtype=torch.float64, requires_grad=True)

        def call(x: Tensor) -> Tensor:
            torch.manual_seed(3)
            return layer(x)[0]

        require_first_derivatives(call, (x,))

    def test_it_keeps_the_expectation(self) -> None:
        torch.manual_seed(0)
        layer, x = SelfAttention(4, 8, dropout=0.3), torch.randn(1, 20, 4)
        mean = layer(x.expand(2000, -1, -1))[0].mean(0, keepdim=True)
        torch.testing.assert_close(mean, layer.eval()(x)[0], atol=0.02, rtol=0)


@pytest.mark.bad_input
class TestBadInput:
    @pytest.mark.parametrize(
        "options",
        [
            {"num_heads": 3},
            {"num_heads": 4, "kv_heads": 3},
            {"num_heads": 0},
            {"dropout": 1.0},
            {"output_dim": 0},
        ],
        ids=str,
    )
    def test_sizes_that_make_no_sense(self, options: dict[str, int]) -> None:
        with pytest.raises(ArgumentError):
            SelfAttention(4, 8, **options)

    def test_shapes_that_do_not_fit(self) -> None:
        layer, x = SelfAttention(4, 8), torch.randn(2, 5, 4)
        with pytest.raises(ShapeError, match="with 4 features"):
            layer(torch.randn(2, 5, 3))
        with pytest.raises(ShapeError, match="x must be"):
            layer(torch.randn(5, 4))
        with pytest.raises(ShapeError, match=r"mask must be .* = \[2, 5\]; got \[2, 4\]"):
            layer(x, torch.ones(2, 4))
        with pytest.raises(ShapeError, match="as many positions as x where causal=True; got 3 and"):
            SelfAttention(4, 8, causal=True)(x, context=torch.randn(2, 3, 4))
        with pytest.raises(ArgumentError, match="0 \\(padding\\) and 1"):
            layer(x, torch.full((2, 5), 0.5))
