"""Code that is compiled or scripted, and modules in which there is no softmax attention."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedmap
from heedmap.errors import ModelError

from .dense import dense_weights, require_close


class Attention(nn.Module):
    """One layer of self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).unflatten(-1, (3, 4, -1)).transpose(1, 3).unbind(2)
        return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


class Fused(Attention):
    """The same, so that a layer of two is told from the other."""


class ByHand(Attention):
    """One layer whose weights are computed by hand."""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).unflatten(-1, (3, 4, -1)).transpose(1, 3).unbind(2)
        weights = torch.softmax(query @ key.mT / 2, dim=-1)
        return (weights @ value).transpose(1, 2).flatten(2)


class LinearAttention(nn.Module):
    """Attention without a softmax."""

    def forward(self, x: Tensor) -> Tensor:
        key = F.elu(x) + 1
        return key @ (key.mT @ x) / key.sum(-1, keepdim=True)


def x() -> Tensor:
    return torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))


def expected(layer: Attention, given: Tensor) -> Tensor:
    query, key, _ = layer.project(given).unflatten(-1, (3, 4, -1)).transpose(1, 3).unbind(2)
    return dense_weights(query, key)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        yield
    torch.compiler.reset()


class Counting:
    """A compiler that counts the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs = 0
        self.runs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        del inputs
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


@pytest.mark.parametrize("make", [Attention, ByHand])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_models_are_seen_and_stay_compiled(backend: str, make: type[Attention]) -> None:
    layer = make().eval()
    model: Any = torch.compile(layer, backend=backend)
    with torch.no_grad():
        alone = model(x())
        with heedmap.watch(model) as seen:
            watched = model(x())
        after = model(x())
    assert torch.equal(alone, watched)
    assert torch.equal(alone, after)
    require_close(seen[0], expected(layer, x()))
    assert seen.missed == []


def test_what_was_compiled_before_the_watch_is_run_after_it() -> None:
    compiler, layer = Counting(), Attention().eval()
    model: Any = torch.compile(layer, backend=compiler)
    with torch.no_grad():
        model(x())
        assert (compiler.graphs, compiler.runs) == (1, 1)
        with heedmap.watch(model):
            model(x())
        assert (compiler.graphs, compiler.runs) == (1, 1)
        model(x())
    assert compiler.runs == 2
    assert compiler.graphs == 1


def test_what_is_first_compiled_after_the_watch_does_not_know_of_it() -> None:
    compiler, layer = Counting(), Attention().eval()
    model: Any = torch.compile(layer, backend=compiler, fullgraph=True)
    with torch.no_grad():
        with heedmap.watch(model):
            model(x())
        assert compiler.graphs == 0
        model(x())
    assert compiler.graphs == 1


def test_a_compiled_layer_within_a_model() -> None:
    model: Any = nn.Sequential(Attention(), Attention()).eval()
    model[1].compile(backend="aot_eager")
    with torch.no_grad():
        alone = model(x())
        with heedmap.watch(model) as seen:
            watched = model(x())
    assert torch.equal(alone, watched)
    assert seen.names == ["0", "1"]
    require_close(seen["1"], expected(model[1], model[0](x())))


def test_a_compiled_function() -> None:
    attend: Any = torch.compile(F.scaled_dot_product_attention, backend="eager")

    class Model(nn.Module):
        def forward(self, given: Tensor) -> Tensor:
            return attend(given, given, given)

    model = Model()
    alone = model(x()[:, None])
    with heedmap.watch(model) as seen:
        watched = model(x()[:, None])
    assert torch.equal(alone, watched)
    require_close(seen[0], dense_weights(x()[:, None], x()[:, None]))


@pytest.mark.slow
def test_flex_attention_compiled_to_a_kernel() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    visible = torch.ones(130, 130, dtype=torch.bool).tril()
    block_mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 130, 130, "cpu")
    attend: Any = torch.compile(flex_attention)

    class Model(nn.Module):
        def forward(self, given: Tensor) -> Tensor:
            return attend(given, given, given, block_mask=block_mask)

    given, model = torch.randn(1, 4, 130, 16), Model()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        alone = model(given)
        with heedmap.watch(model) as seen:
            watched = model(given)
        after = model(given)
    assert torch.equal(alone, after)
    # While it is watched it runs as it was written, not in the kernel that was made of it.
    torch.testing.assert_close(alone, watched)
    require_close(seen[0], dense_weights(given, given, visible=visible))


def test_scripted_layers_are_named_as_not_captured() -> None:
    model = nn.Sequential(Attention(), torch.jit.script(Attention())).eval()
    with torch.no_grad():
        alone = model(x())
        with heedmap.watch(model) as seen:
            watched = model(x())
    assert torch.equal(alone, watched)
    assert seen.names == ["0"]
    assert seen.missed == [("1", "scripted code cannot be looked into")]
    assert "not captured: 1: scripted code cannot be looked into" in repr(seen)


def test_attention_without_a_softmax_is_named_as_not_captured() -> None:
    model = nn.Sequential(LinearAttention(), Attention()).eval()
    with heedmap.watch(model) as seen:
        model(x())
    assert seen.names == ["1"]
    assert seen.missed == [("0", "it ran, but no softmax attention was seen in it")]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (LinearAttention(), "no softmax attention was seen in it"),
        (nn.Linear(16, 16), "was it run inside the block"),
    ],
)
def test_nothing_captured_is_an_error(model: nn.Module, reason: str) -> None:
    with pytest.raises(ModelError, match=reason), heedmap.watch(model):
        model(x())


@pytest.mark.bad_input
def test_a_scripted_model_is_an_error() -> None:
    model: Any = torch.jit.script(Attention())
    reason = "scripted code cannot be looked into"
    with pytest.raises(ModelError, match=reason), heedmap.watch(model):
        model(x())


@pytest.mark.bad_input
def test_a_model_that_was_not_run_is_an_error() -> None:
    with pytest.raises(ModelError, match="was it run inside the block"), heedmap.watch(Attention()):
        pass


@pytest.mark.slow
def test_what_loads_the_compiler_while_it_is_watched() -> None:
    program = """
import sys, warnings
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
import heedmap

class Flex(nn.Module):
    def forward(self, x):
        return flex_attention(x, x, x)

warnings.simplefilter("ignore")
x, model, compile = torch.randn(1, 2, 6, 8), Flex(), torch.compile
assert "torch._dynamo" not in sys.modules
with heedmap.watch(model) as seen:
    watched = model(x)
assert torch.equal(watched, model(x))
assert seen.check().ok and torch.compile is compile
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_softmax_over_features_is_no_attention() -> None:
    class OverFeatures(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.softmax(-1) @ (x.softmax(-2).mT @ x)

    model = nn.Sequential(OverFeatures(), Attention()).eval()
    x = torch.randn(2, 5, 16)
    alone = model(x)
    with heedmap.watch(model) as seen:
        watched = model(x)
    assert torch.equal(alone, watched)
    assert seen.names == ["1"]
    ((name, reason),) = seen.missed
    assert name == "0"
    assert "linear attention" in reason
