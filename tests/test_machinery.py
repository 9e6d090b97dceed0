"""Maps, modules and what was seen under PyTorch's machinery: other processes, files, graphs.

Compiled code, vmap and the transforms of torch.func are in tests/hazards/test_machinery.py.
"""

import copy
import io
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import heedmap
from heedmap import AttentionMap, Causal, Documents, Padding, Visible
from heedmap.errors import UnsupportedError
from heedmap.kernels.differentiable import KERNELS
from heedmap.masks import Spans
from heedmap.nn import SelfAttention
from heedmap.seen import Seen


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def make(seed: int = 0) -> AttentionMap:
    x = draw(2, 6, 4, seed=seed)
    valid = torch.tensor([[1] * 6, [0] * 2 + [1] * 4])
    return heedmap.attention(x, x, x, mask=Padding(valid) & Causal())[1]


def make_seen() -> Seen:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with heedmap.watch(model) as seen:
        model(draw(1, 5, 8))
    return seen


def numbers_of(held: Any) -> list[Tensor]:
    if isinstance(held, Seen):
        return [part for weights in held for part in numbers_of(weights)]
    if isinstance(held, heedmap.Summary):
        return [held.received, held.entropy]
    return [held.to_dense()]


def require_same(found: Any, expected: Any) -> None:
    for one, other in zip(numbers_of(found), numbers_of(expected), strict=True):
        assert torch.equal(one, other)


def saved_and_loaded(held: Any) -> Any:
    stored = io.BytesIO()
    torch.save({"held": held}, stored)
    stored.seek(0)
    return torch.load(stored)["held"]


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda held: pickle.loads(pickle.dumps(held)),
    "torch.save": saved_and_loaded,
}


MADE: dict[str, Callable[[], Any]] = {
    "map": make,
    "selected": lambda: make()[0],
    "reduced": lambda: make().mean(0),
    "summary": lambda: make().summarize(),
    "seen": make_seen,
}


@pytest.mark.parametrize("how", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_copies_and_files(how: Callable[[Any], Any], made: Callable[[], Any]) -> None:
    held = made()
    require_same(how(held), held)


def test_what_was_seen_is_copied_without_the_model() -> None:
    seen = make_seen()
    copied = copy.deepcopy(seen)
    assert copied.names == seen.names
    assert repr(copied) == repr(seen)
    assert copied.check().ok
    assert len(pickle.dumps(seen)) < 20_000
    with pytest.raises(heedmap.HeedmapError, match="along must be asked"):
        copied.along(torch.zeros(1, 1).long())


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_module_that_holds_a_map(how: Callable[[nn.Module], nn.Module]) -> None:
    layer = SelfAttention(4, 8, num_heads=2, causal=True)
    x = draw(2, 5, 4)
    layer.latest = layer(x)[1].detach()
    copied = how(layer)
    require_same(copied.latest, layer.latest)
    require_same(copied(x)[1], layer(x)[1])
    assert copied.w_q.weight is not layer.w_q.weight


@pytest.mark.slow
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_other_processes_and_workers_of_a_loader(start: str) -> None:
    program = Path(__file__).with_name("other_processes.py")
    ran = subprocess.run([sys.executable, program, start], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "agreed\n"


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_of_the_graph(reentrant: bool) -> None:
    layer, x = SelfAttention(4, 8, num_heads=2), draw(2, 5, 4)
    grads = []
    for again in (False, True):
        given = x.clone().requires_grad_()
        output = (
            checkpoint(lambda x: layer(x)[0], given, use_reentrant=reentrant)
            if again
            else layer(given)[0]
        )
        output.square().sum().backward()
        grads.append(given.grad)
    torch.testing.assert_close(*grads)


def test_a_loss_on_the_weights_within_a_checkpoint() -> None:
    layer, x = SelfAttention(4, 8), draw(2, 5, 4)
    grads = []
    for again in (False, True):
        given = x.clone().requires_grad_()

        def loss(x: Tensor) -> Tensor:
            output, weights = layer(x)
            return output.sum() + weights.entropy().sum()

        (checkpoint(loss, given, use_reentrant=False) if again else loss(given)).backward()
        grads.append(given.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_step_of_training_under_autocast(dtype: torch.dtype) -> None:
    layer, x = SelfAttention(8, 8, num_heads=2, output_dim=8), draw(2, 5, 8)
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.w_q.weight.detach().clone()
    with torch.autocast("cpu", dtype=dtype):
        output, weights = layer(x)
        assert output.dtype == weights.dtype == dtype
        loss = output.float().square().mean() + weights.entropy().float().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    change = layer.w_q.weight.detach() - before
    assert bool(torch.isfinite(change).all())
    assert bool((change != 0).any())


def test_data_parallel_of_one() -> None:
    layer, x = SelfAttention(4, 8), draw(2, 5, 4)
    require_same(nn.DataParallel(layer)(x)[1], layer(x)[1])


class TestGraphsWithoutPython:
    """They would hold what our kernel put into memory once, so none is made."""

    def test_export(self) -> None:
        with pytest.raises(UnsupportedError, match="must be run by Python; got an export"):
            torch.export.export(SelfAttention(4, 8), (draw(2, 5, 4),), strict=False)

    def test_trace(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(UnsupportedError, match="must be run by Python"):
                torch.jit.trace(SelfAttention(4, 8), draw(2, 5, 4))

    def test_a_graph_of_operations(self) -> None:
        with pytest.raises(UnsupportedError, match="scaled_dot_product_attention in their place"):
            make_fx(lambda x: heedmap.attention(x, x, x)[0])(draw(2, 5, 4))


@pytest.mark.parametrize("backend", ["auto", *KERNELS])
class TestTensorsWithoutNumbers:
    def test_of_the_meta_device(self, backend: str) -> None:
        x = torch.empty(2, 5, 4, device="meta")
        with pytest.raises(UnsupportedError, match=r"query must have numbers; got .* meta"):
            heedmap.attention(x, x, x, backend=backend)

    def test_that_stand_for_others(self, backend: str) -> None:
        with FakeTensorMode():
            x = torch.empty(2, 5, 4)
            with pytest.raises(UnsupportedError, match="FakeTensorMode"):
                heedmap.attention(x, x, x, backend=backend)


MASKS = {
    "valid": lambda marks: Padding(marks),
    "table": lambda marks: Visible(marks),
    "query_ids": lambda marks: Documents(marks.long()),
    "first": lambda marks: Spans(marks[:, None].long(), marks[:, None].long()),
}
"""Each kind of mask, made of ``[batch, positions]`` marks."""


@pytest.mark.parametrize("name", MASKS)
class TestMasksThatStandForOthers:
    def attend(self, name: str, marks: Tensor) -> Tensor:
        x = torch.ones(*marks.shape, 4)
        return heedmap.attention(x, x, x, mask=MASKS[name](marks))[0]

    def test_without_numbers(self, name: str) -> None:
        with pytest.raises(UnsupportedError, match=f"{name} must have numbers"):
            self.attend(name, torch.ones(5, 5, dtype=torch.bool, device="meta"))

    def test_by_vmap(self, name: str) -> None:
        marks = torch.ones(3, 5, 5, dtype=torch.bool)
        with pytest.raises(UnsupportedError, match=f"{name} must be a whole tensor"):
            torch.func.vmap(lambda marks: self.attend(name, marks))(marks)


def test_the_export_of_a_layer_with_a_mask_of_numbers() -> None:
    given = draw(2, 5, 4), torch.ones(2, 5)
    with pytest.raises(UnsupportedError, match="valid must have numbers"):
        torch.export.export(SelfAttention(4, 8), given, strict=False)


class TestStateOfMultiheadAttention:
    @pytest.mark.parametrize("options", [{}, {"bias": True}, {"context_dim": 6}], ids=str)
    def test_there_and_back(self, options: dict[str, Any]) -> None:
        layer = SelfAttention(8, 8, num_heads=2, output_dim=8, dropout=0.1, **options).eval()
        theirs = layer.to_multihead_attention()
        assert not theirs.training
        x, context = draw(2, 5, 8), draw(2, 7, layer.context_dim, seed=1)
        output, weights = layer(x, context=context)
        expected = theirs(x, context, context, average_attn_weights=False)
        torch.testing.assert_close(output, expected[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(weights.to_dense(), expected[1], atol=1e-6, rtol=1e-5)
        back = SelfAttention.from_multihead_attention(theirs)
        for one, other in zip(back.parameters(), layer.parameters(), strict=True):
            assert torch.equal(one, other)

    def test_they_share_no_memory(self) -> None:
        layer = SelfAttention(8, 8, output_dim=8)
        theirs = layer.to_multihead_attention()
        with torch.no_grad():
            theirs.out_proj.weight.zero_()
        assert bool((layer.w_o.weight != 0).any())

    @pytest.mark.parametrize(
        "options",
        [{}, {"output_dim": 4}, {"output_dim": 8, "num_heads": 2, "kv_heads": 1}],
        ids=str,
    )
    def test_what_does_not_fit_is_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(UnsupportedError, match="Keep a SelfAttention"):
            SelfAttention(8, 8, **options).to_multihead_attention()
