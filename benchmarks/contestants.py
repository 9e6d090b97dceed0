"""Who computes: each contestant prepares a problem and returns a call to be timed.

Packages are imported inside, for not every environment has all of them.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.problems import Problem

Call = Callable[[], object]

EAGER_BYTES = 3 << 30


class Refused(Exception):
    """A contestant does not take a problem."""


def inputs_of(problem: Problem) -> tuple[Any, Any, Any]:
    """Return query, key and value, the same numbers in every process with PyTorch."""
    import torch

    torch.manual_seed(0)
    kv_heads = problem.kv_heads or problem.heads
    return tuple(
        torch.randn(1, heads, problem.positions, problem.width)
        for heads in (problem.heads, kv_heads, kv_heads)
    )  # pyright: ignore[reportReturnType]


def valid_of(problem: Problem) -> Any:
    import torch

    return torch.arange(problem.positions)[None] < problem.positions * 3 // 4


def sdpa(problem: Problem) -> Call:
    """PyTorch's fused kernel: the output alone."""
    from torch.nn.functional import scaled_dot_product_attention

    given = inputs_of(problem)
    how: dict[str, Any] = {"enable_gqa": problem.groups > 1}
    if problem.hidden == "future":
        how["is_causal"] = True
    elif problem.hidden == "padding":
        how["attn_mask"] = valid_of(problem)[:, None, None]
    return lambda: scaled_dot_product_attention(*given, **how)


def sdpa_trained(problem: Problem) -> Call:
    """PyTorch's fused kernel, forward and backward."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    if problem.hidden != "nothing" or problem.groups > 1 or problem.positions > 10_000:
        raise Refused
    given = [tensor.requires_grad_() for tensor in inputs_of(problem)]
    upward = torch.ones_like(given[0])
    return lambda: scaled_dot_product_attention(*given).backward(upward)


def _kept(problem: Problem) -> None:
    if 8 * problem.heads * problem.positions**2 > EAGER_BYTES:
        raise Refused


def eager(problem: Problem) -> Call:
    """The plain formula, its matrix kept: output and weights."""
    import torch

    _kept(problem)
    if problem.hidden != "nothing" or problem.groups > 1:
        raise Refused
    query, key, value = inputs_of(problem)

    def call() -> object:
        weights = torch.softmax(query @ key.mT / problem.width**0.5, -1)
        return weights @ value, weights

    return call


def eager_sums(problem: Problem) -> Call:
    """The plain formula, and received, entropy and a picture from its matrix."""
    import torch
    from torch.nn.functional import adaptive_avg_pool2d

    call = eager(problem)
    size = min(512, problem.positions)

    def all_of_it() -> object:
        output, weights = call()  # pyright: ignore[reportGeneralTypeIssues]
        entropy = torch.special.entr(weights).sum(-1)
        return output, weights.sum(-2), entropy, adaptive_avg_pool2d(weights, size)

    return all_of_it


def multihead(problem: Problem) -> Call:
    """nn.MultiheadAttention with need_weights=True and its projections: output, mean weights."""
    import torch

    _kept(problem)
    if problem.hidden != "nothing" or problem.groups > 1:
        raise Refused
    width = problem.heads * problem.width
    layer = torch.nn.MultiheadAttention(width, problem.heads, batch_first=True)
    x = torch.randn(1, problem.positions, width)
    return lambda: layer(x, x, x, need_weights=True)


def flex(problem: Problem) -> Call:
    """Compiled flex_attention: output and log-normaliser."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if problem.hidden == "padding" or problem.positions > 40_000:
        raise Refused
    given = inputs_of(problem)
    mask = None
    if problem.hidden == "future":
        size = problem.positions
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, size, size, device="cpu")
    # It counts the shapes that it has been compiled for, and at the ninth no longer compiles.
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(*given, block_mask=mask, enable_gqa=problem.groups > 1)


def _ours(problem: Problem, **keep: Any) -> Call:
    import heedmap

    given = inputs_of(problem)
    mask = {
        "nothing": None,
        "future": heedmap.Causal(),
        "padding": heedmap.Padding(valid_of(problem)),
    }[problem.hidden]
    return lambda: heedmap.attention(*given, mask=mask, **keep)


def attention(problem: Problem) -> Call:
    """heedmap.attention: output and map."""
    return _ours(problem)


def attention_summary(problem: Problem) -> Call:
    """heedmap.attention(keep=Summary(pool=(512, 512))): output, received, entropy, picture."""
    import heedmap

    return _ours(problem, keep=heedmap.Summary(pool=(512, 512)))


def attention_top(problem: Problem) -> Call:
    """heedmap.attention(keep=Summary(top=8, pool=(512, 512))): the strongest keys besides."""
    import heedmap

    return _ours(problem, keep=heedmap.Summary(top=8, pool=(512, 512)))


def attention_trained(problem: Problem) -> Call:
    """heedmap.attention, forward and backward."""
    import torch

    import heedmap

    if problem.hidden != "nothing" or problem.groups > 1 or problem.positions > 10_000:
        raise Refused
    given = [tensor.requires_grad_() for tensor in inputs_of(problem)]
    upward = torch.ones_like(given[0])
    return lambda: heedmap.attention(*given)[0].backward(upward)


def _onnx(problem: Problem, *, weights: bool) -> Call:
    import numpy
    import onnxruntime
    from onnx import TensorProto, helper

    if problem.groups > 1 or problem.hidden == "padding":
        raise Refused
    if weights:
        _kept(problem)
    outputs = ["output", "", "", "weights"] if weights else ["output"]
    node = helper.make_node(
        "Attention",
        ["query", "key", "value"],
        outputs,
        is_causal=int(problem.hidden == "future"),
        **({"qk_matmul_output_mode": 3} if weights else {}),
    )
    shape = [1, problem.heads, problem.positions, problem.width]
    given = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name in ("query", "key", "value")
    ]
    made = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name
    ]
    graph = helper.make_graph([node], "attention", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    turns = numpy.random.default_rng(0)
    feeds = {
        name: turns.standard_normal(shape, dtype=numpy.float32)
        for name in ("query", "key", "value")
    }
    return lambda: session.run(None, feeds)


def onnxruntime(problem: Problem) -> Call:
    """onnxruntime's Attention: the output alone."""
    return _onnx(problem, weights=False)


def onnxruntime_weights(problem: Problem) -> Call:
    """onnxruntime's Attention with its weights returned."""
    return _onnx(problem, weights=True)


def jax(problem: Problem) -> Call:
    """jax.nn.dot_product_attention, compiled: the output alone."""
    import jax as library

    if problem.groups > 1 or problem.hidden == "padding":
        raise Refused
    _kept(problem)
    keys = library.random.split(library.random.key(0), 3)
    shape = (1, problem.positions, problem.heads, problem.width)
    given = [library.random.normal(key, shape) for key in keys]
    causal = problem.hidden == "future"
    compiled = library.jit(
        lambda *inputs: library.nn.dot_product_attention(*inputs, is_causal=causal)
    )
    return lambda: compiled(*given).block_until_ready()


THREADS = 2
"""How many threads each contestant may use."""
