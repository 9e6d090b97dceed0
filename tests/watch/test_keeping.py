"""What is kept of a watched model, and what that may take."""

import contextlib
import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedmap
from heedmap.errors import ArgumentError, BudgetError, ModelError
from heedmap.watch import interception


class Attention(nn.Module):
    """Causal self-attention of four heads by scaled_dot_product_attention."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).mT.flatten(1, 2).mT


class Stack(nn.Module):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention() for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def model() -> Stack:
    torch.manual_seed(0)
    return Stack().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _nothing_stays_hung() -> Iterator[None]:
    before = F.scaled_dot_product_attention
    yield
    assert F.scaled_dot_product_attention is before
    assert not interception._listeners
    assert not interception._undo
    assert not torch.overrides._get_current_function_mode_stack()


def dense(seen: Any) -> list[Tensor]:
    return [weights.to_dense() for weights in seen]


def test_table_names_and_places(model: Stack, x: Tensor) -> None:
    with heedmap.watch(model) as seen:
        model(x)
    assert seen.names == ["layers.0", "layers.1", "layers.2"]
    assert len(seen) == 3
    assert torch.equal(seen["layers.1"].to_dense(), seen[1].to_dense())
    assert torch.equal(seen[-1].to_dense(), seen["layers.2", 0].to_dense())
    assert [w.shape for w in seen[1:]] == [(2, 4, 6, 6)] * 2
    assert len(seen.self_attention) == 3
    assert len(seen.cross_attention) == 0
    assert seen.matching("*.1").names == ["layers.1"]
    lines = repr(seen).splitlines()
    assert lines[0].split() == ["name", "kind", "calls", "shape", "kept"]
    assert " ".join(lines[2].split()) == "1 layers.1 causal 1 2 × 4 × 6 × 6 factors"


def test_layers_are_chosen_by_name_pattern_and_place(model: Stack, x: Tensor) -> None:
    for layers, kept in ((["layers.1"], [1]), ("layers.[12]", [1, 2]), ([0, "*.2"], [0, 2])):
        with heedmap.watch(model, layers=layers) as seen:
            model(x)
        assert [i for i, w in enumerate(seen) if w is not None] == kept
    assert "not among layers=" in repr(seen)


def test_heads_and_queries_are_rows_of_the_whole(model: Stack, x: Tensor) -> None:
    with heedmap.watch(model) as whole:
        model(x)
    with heedmap.watch(model, heads=[3, 0], queries=[-1, 2]) as some:
        model(x)
    for weights, part in zip(whole, some, strict=True):
        expected = weights.to_dense()[:, [3, 0]][:, :, [-1, 2]]
        torch.testing.assert_close(part.to_dense(), expected, atol=1e-6, rtol=0)
    with heedmap.watch(model, heads=slice(2), queries=0) as first:
        model(x)
    assert first[0].shape == (2, 2, 1, 6)


def test_a_summary_is_made_while_the_model_runs(model: Stack, x: Tensor) -> None:
    with heedmap.watch(model) as whole:
        model(x)
    with heedmap.watch(model, keep=heedmap.Summary(top=2, pool=(3, 3))) as seen:
        model(x)
    for weights, summary in zip(whole, seen, strict=True):
        wanted = weights.summarize(top=2, pool=(3, 3))
        assert torch.equal(summary.top_keys, wanted.top_keys)
        torch.testing.assert_close(summary.received, wanted.received)
        torch.testing.assert_close(summary.pooled, wanted.pooled)
    assert "reduced" in repr(seen)
    with heedmap.watch(model, keep=lambda weights: weights.entropy()) as entropies:
        model(x)
    torch.testing.assert_close(entropies[0], whole[0].entropy())


def test_gradients_flow_from_weights_into_the_model(model: Stack, x: Tensor) -> None:
    with heedmap.watch(model, grad=True) as seen:
        model(x)
    seen[2].entropy().sum().backward()
    found = model.layers[0].project.weight.grad
    model.zero_grad()
    y = model.layers[1](model.layers[0](x))
    query, key, _ = model.layers[2].project(y).unflatten(-1, (3, 4, -1)).unbind(-3)
    scores = query.transpose(1, 2) @ key.transpose(1, 2).mT / 2
    weights = scores.masked_fill(~torch.ones(6, 6, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    (-weights * weights.clamp_min(1e-30).log()).sum().backward()
    torch.testing.assert_close(found, model.layers[0].project.weight.grad)


def test_without_grad_no_graph_is_held(model: Stack, x: Tensor) -> None:
    with heedmap.watch(model) as seen:
        output = model(x)
    assert output.requires_grad
    assert not any(weights.requires_grad for weights in seen)


def test_budget_is_refused_before_the_copy(model: Stack, x: Tensor) -> None:
    one = 2 * 2 * 4 * 6 * 4 * 4
    with (
        pytest.raises(BudgetError, match=r"max_bytes must .* at layers\.2\. The largest is layers"),
        heedmap.watch(model, max_bytes=2 * one + 600),
    ):
        model(x)
    with heedmap.watch(model, max_bytes=4 * one) as seen:
        model(x)
    assert len(seen) == 3


def test_what_is_kept_is_no_view_of_the_models_tensors(x: Tensor) -> None:
    class Overwrites(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            query, key = x.clone(), x.clone()
            output = F.scaled_dot_product_attention(query, key, key)
            query.fill_(7)
            key.zero_()
            return output

    model = Overwrites()
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode(), heedmap.watch(model) as seen:
            output = model(x)
        torch.testing.assert_close(seen[0] @ x, output)


def test_two_watches_nested_and_of_two_models(model: Stack, x: Tensor) -> None:
    other = Stack(1).eval()
    with heedmap.watch(model) as outer, heedmap.watch(model, layers=[0]) as inner:
        with heedmap.watch(other) as second:
            model(x)
            other(x)
        model(x)
    assert [layer.number for layer in outer.layers] == [0, 0, 0, 1, 1, 1]
    assert [layer.kept for layer in inner.layers].count("factors") == 2
    assert second.names == ["layers.0"]
    with pytest.raises(ArgumentError, match=r"attended 2 times. Use seen\['layers.0', 0\]"):
        outer["layers.0"]


def test_threads(model: Stack, x: Tensor) -> None:
    other = Stack(2).eval()
    seen_in: dict[str, list[str]] = {}

    def work(name: str, watched: Stack) -> None:
        with heedmap.watch(watched) as seen:
            for _ in range(5):
                watched(x)
        seen_in[name] = seen.names

    threads = [threading.Thread(target=work, args=pair) for pair in (("a", model), ("b", other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen_in == {"a": model_names(3) * 5, "b": model_names(2) * 5}


def model_names(count: int) -> list[str]:
    return [f"layers.{i}" for i in range(count)]


def test_a_model_that_runs_in_another_thread_is_seen(model: Stack, x: Tensor) -> None:
    with heedmap.watch(model) as seen:
        thread = threading.Thread(target=model, args=(x,))
        thread.start()
        thread.join()
    assert seen.names == model_names(3)


def test_all_is_restored_when_the_model_raises(model: Stack, x: Tensor) -> None:
    with pytest.raises(RuntimeError, match="shapes"), heedmap.watch(model):
        model(x[..., :3])
    with heedmap.watch(model) as seen:
        model(x)
    assert len(seen) == 3


def test_all_is_restored_when_it_is_interrupted(model: Stack, x: Tensor) -> None:
    class Interrupted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyboardInterrupt

    model.layers.append(Interrupted())
    with pytest.raises(KeyboardInterrupt), heedmap.watch(model):
        model(x)
    del model.layers[-1]
    with heedmap.watch(model) as seen:
        model(x)
    assert len(seen) == 3


def test_nothing_captured_is_an_error(x: Tensor) -> None:
    model = nn.Linear(16, 16)
    with pytest.raises(ModelError, match="no attention was captured"), heedmap.watch(model):
        model(x)


def test_check_tells_right_from_wrong(model: Stack, x: Tensor) -> None:
    with heedmap.watch(model) as seen:
        model(x)
    checks = seen.check()
    assert checks.ok
    assert [checked.name for checked in checks] == model_names(3)
    for checked in checks:
        assert checked.weight_error is not None
        assert checked.weight_error < 1e-6
        assert checked.output_error is not None
        assert checked.output_error < 1e-5


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"keep": "weights"}, "keep must be 'factors', a heedmap.Summary or a function of a map"),
        ({"max_bytes": -1}, "max_bytes must be a number of bytes from 0 on; got -1"),
        ({"layers": [1.5]}, "layers must be"),
        ({"heads": ["0"]}, "heads must be"),
    ],
)
@pytest.mark.bad_input
def test_bad_options(model: Stack, options: dict[str, Any], error: str) -> None:
    with pytest.raises(ArgumentError, match=error):
        heedmap.watch(model, **options)


@pytest.mark.bad_input
def test_what_is_no_model() -> None:
    with pytest.raises(ArgumentError, match=r"model must be a torch.nn.Module; got str"):
        heedmap.watch("bert")  # pyright: ignore


@pytest.mark.bad_input
def test_heads_that_are_not_there(model: Stack, x: Tensor) -> None:
    wrong = pytest.raises(ArgumentError, match="heads must be numbers of 4")
    with wrong, heedmap.watch(model, heads=[4]):
        model(x)


def test_a_layer_that_is_not_there(model: Stack, x: Tensor) -> None:
    with heedmap.watch(model) as seen:
        model(x)
    with pytest.raises(ArgumentError, match="name must be that of a layer"):
        seen["layers.9"]
    with pytest.raises(IndexError, match="one of 3; got 3"):
        seen[3]


def maps_alive() -> list[Any]:
    return [thing for thing in gc.get_objects() if type(thing) is heedmap.AttentionMap]


def test_nothing_is_held_after_the_watch(model: Stack, x: Tensor) -> None:
    before = {id(map_) for map_ in maps_alive()}
    with heedmap.watch(model) as seen:
        model(x)
    assert len(seen) == 3
    del seen
    gc.collect()
    assert all(id(map_) in before for map_ in maps_alive())


MEMORY = """
import gc, torch, torch.nn as nn, heedmap

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
x = torch.randn(1, 512, 16)
# What is there by now need not be looked through 200 times.
gc.freeze()
sizes = []
with torch.no_grad():
    for _ in range(200):
        with heedmap.watch(model) as seen:
            model(x)
        seen[0].sum(-2)
        sizes.append(resident())
# Blocks that are being computed come and go; what is kept from call to call would add up.
print((sum(sizes[-50:]) - sum(sizes[10:60])) / 50)
"""


@pytest.mark.slow
def test_two_hundred_calls_leave_memory_flat() -> None:
    ran = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) < 4 << 20


class Cross(nn.Module):
    """Self-attention, then cross-attention to another sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        x = self.self_attn(x, x, x, need_weights=False)[0]
        return self.cross_attn(x, source, source, need_weights=False)[0]


# A single query of which nothing else is seen is what a step looks like.
@pytest.mark.parametrize(("length", "layers"), [(1, None), (4, None), (4, "cross_attn")])
def test_calls_with_one_source_are_no_steps_of_a_decoding(length: int, layers: str | None) -> None:
    model, source = Cross().eval(), torch.randn(1, 7, 8)
    with heedmap.watch(model, layers=layers) as seen:
        for _ in range(3):
            model(torch.randn(1, length, 8), source)
    layers_seen = [layer for layer in seen.layers if layer.name == "cross_attn"]
    assert [layer.shape for layer in layers_seen] == [(1, 2, length, 7)] * 3


@pytest.mark.parametrize(
    ("queries", "first"), [(None, 0), ([3], 3), (slice(1, None, 2), 1), (-1, 5), (0, 0)]
)
@pytest.mark.parametrize("grad", [False, True])
def test_the_place_of_the_first_query(
    model: Stack, x: Tensor, queries: Any, first: int, grad: bool
) -> None:
    with heedmap.watch(model, queries=queries, grad=grad) as seen:
        model(x)
    assert {layer.first_query for layer in seen.layers} == {first}


def test_layers_that_nobody_has(model: Stack, x: Tensor) -> None:
    error = r"layers must be some .* got \['nobody'\], and 3 others did. The first are layers.0, "
    with pytest.raises(ModelError, match=error), heedmap.watch(model, layers="nobody"):
        model(x)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda seen: pickle.loads(pickle.dumps(seen))])
def test_what_was_seen_can_be_copied(model: Stack, x: Tensor, copied: Any) -> None:
    with heedmap.watch(model) as seen:
        model(x)
    other = copied(seen)
    assert repr(other) == repr(seen)
    assert other.check().ok
    assert all(map(torch.equal, dense(other), dense(seen)))
    with pytest.raises(ArgumentError, match="a copy"):
        other.along(torch.zeros(2, 1, dtype=torch.long))


def test_the_model_is_not_held() -> None:
    model = Cross().eval()
    with heedmap.watch(model) as seen:
        model(torch.randn(1, 4, 8), torch.randn(1, 7, 8))
    parts = [weakref.ref(part) for part in (model, *model.parameters())]
    del model
    gc.collect()
    assert len(seen) == 2
    assert not any(part() is not None for part in parts)


class ByHand(nn.Module):
    """Attention with its own weights, of scores that nobody follows, or a bias of all pairs."""

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if bias is not None:
            return F.scaled_dot_product_attention(x, x, x, bias)
        return (x @ x.mT).exp().softmax(-1) @ x


@pytest.mark.parametrize("case", ["weights", "bias", "gradients"])
def test_budget_counts_all_that_is_kept(case: str) -> None:
    x = torch.randn(2, 4, 64, 8)
    bias = None if case == "weights" else torch.randn(1, 4, 64, 64)
    needed = {"weights": 2 * 4 * 64 * 64 * 4, "bias": 4 * 64 * 64 * 4 + 2 * x.nbytes}
    for more in (-1, 0):
        room = needed.get(case, needed["bias"]) + more
        with contextlib.ExitStack() as stack:
            if more:
                stack.enter_context(pytest.raises(BudgetError, match="max_bytes must allow"))
            model, grad = ByHand(), case == "gradients"
            stack.enter_context(heedmap.watch(model, grad=grad, max_bytes=room))
            model(x, bias)


@pytest.mark.parametrize("device", ["nonsense", "meta", "cuda:99"])
def test_a_device_that_is_not_there(model: Stack, device: str) -> None:
    with pytest.raises(ArgumentError, match="device must"):
        heedmap.watch(model, device=device)


def test_a_watch_is_entered_once(model: Stack, x: Tensor) -> None:
    watching = heedmap.watch(model)
    with watching as seen:
        with pytest.raises(ArgumentError, match="a watch must be entered once"):
            watching.__enter__()
        model(x)
    assert len(seen) > 0
