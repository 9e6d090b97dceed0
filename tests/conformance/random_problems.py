"""Random problems for the operator Attention, and what ONNX's own evaluator makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from .onnx_attention import CAPPED, INPUTS, RAW


@dataclass(frozen=True)
class Drawn:
    """One call of the operator: its opset, its inputs by role, its attributes."""

    opset: int
    inputs: dict[str, np.ndarray]
    options: dict[str, Any]

    @property
    def arrays(self) -> list[np.ndarray]:
        """The inputs in the order of the node."""
        return [self.inputs[role] for role in INPUTS if role in self.inputs]

    @property
    def node(self) -> NodeProto:
        """The node that asks for everything that it may ask for."""
        given = [role if role in self.inputs else "" for role in INPUTS]
        present = ("present_key", "present_value") if "past_key" in self.inputs else ("", "")
        return helper.make_node(
            "Attention", given, ["Y", *present, "qk_matmul_output"], **self.options
        )


def draw(seed: int) -> Drawn:
    """Return the problem with this number."""
    random = np.random.default_rng(seed)
    opset = _one(random, 23, 24, 25)
    # The suite allows an error of 10⁻⁷ and of a thousandth of the number. In float32 that leaves no
    # room for sums of numbers of both signs, so there all are positive, as in the suite. In half
    # precision the evaluator rounds at every step, which leaves no room at all.
    dtype = _one(random, np.float32, np.float64)
    numbers = random.random if dtype == np.float32 else random.standard_normal
    batch, kv_heads, group = _one(random, 0, 1, 1, 2, 3), _one(random, 1, 2), _one(random, 1, 3)
    heads, queries = kv_heads * group, _one(random, 0, 1, 4, 7)
    cache = _one(random, "none", "past", "nonpad" if opset >= 24 else "none")
    past = _one(random, 0, 1, 6) if cache == "past" else 0
    # The evaluator has no answer where there is no key at all.
    new = max(_one(random, 0, 1, 5, 9), 1 - past)
    head_dim, value_dim = _one(random, 0, 1, 3, 8), _one(random, 0, 1, 5)
    inputs = {
        "Q": numbers((batch, heads, queries, head_dim)).astype(dtype),
        "K": numbers((batch, kv_heads, new, head_dim)).astype(dtype),
        "V": numbers((batch, kv_heads, new, value_dim)).astype(dtype),
    }
    if cache == "past":
        inputs["past_key"] = numbers((batch, kv_heads, past, head_dim)).astype(dtype)
        inputs["past_value"] = numbers((batch, kv_heads, past, value_dim)).astype(dtype)
    if cache == "nonpad":
        inputs["nonpad_kv_seqlen"] = random.integers(0, new + 1, batch)
    kind = _one(random, "none", "bool", "float")
    if kind != "none":
        mask = _visible(random, (batch, heads, queries, past + new), opset)
        bias = np.where(mask, 2 * random.random(mask.shape), -np.inf).astype(dtype)
        inputs["attn_mask"] = mask if kind == "bool" else bias
    options = _options(random, opset, dtype, head_dim)
    # The evaluator cannot fold heads of nothing.
    if batch * queries * value_dim and _one(random, True, False):
        options |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
        inputs |= {role: _folded(inputs[role]) for role in "QKV"}
    return Drawn(opset, inputs, options)


def evaluate(problem: Drawn) -> list[np.ndarray]:
    """Return what the reference evaluator gives for the outputs that are asked for."""
    inputs = dict(problem.inputs)
    windows = max(problem.options.get(f"{side}_window_size", -1) for side in ("left", "right"))
    if "attn_mask" in inputs and problem.options.get("is_causal") and windows < 0:
        # The evaluator takes the number of queries for its causal mask from this one's shape.
        mask = inputs["attn_mask"]
        queries = inputs["Q"].shape[-2]
        inputs["attn_mask"] = mask + np.zeros((queries, 1), mask.dtype)
    node = problem.node
    model = helper.make_model(
        helper.make_graph(
            [node],
            "attention",
            [_info(role, array) for role, array in inputs.items()],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        ),
        opset_imports=[helper.make_opsetid("", problem.opset)],
    )
    return list(ReferenceEvaluator(model).run(None, inputs))


def _options(random: np.random.Generator, opset: int, dtype: type, head_dim: int) -> dict[str, Any]:
    # Where vectors have no entries the evaluator divides by √0.
    scale = _one(random, *(() if head_dim == 0 else (None,)), 0.0, 0.3, 2.0)
    precisions = [None, TensorProto.DOUBLE, *([TensorProto.FLOAT] if dtype == np.float32 else [])]
    options = {
        "is_causal": _one(random, None, 0, 1),
        "scale": scale,
        "softcap": _one(random, None, 0.0, 0.5, 3.0),
        "softmax_precision": _one(random, *precisions),
    }
    # With a cap, the evaluator gives capped scores for raw ones too, unlike its documentation.
    lowest = CAPPED if options["softcap"] else RAW
    options["qk_matmul_output_mode"] = int(random.integers(lowest, 4))
    if opset >= 25:
        options["left_window_size"] = _one(random, None, -1, 0, 2)
        options["right_window_size"] = _one(random, None, -1, 0, 1)
    return {name: value for name, value in options.items() if value is not None}


def _visible(random: np.random.Generator, sizes: Sequence[int], opset: int) -> np.ndarray:
    """Return a mask of any rank, in which sizes may be 1, and from opset 24 keys may be lacking."""
    *lead, keys = sizes
    if opset >= 24 and _one(random, True, False):
        keys = int(random.integers(1, keys + 1))
    rank = int(random.integers(1, 5))
    shape = [*(size if _one(random, True, False) else 1 for size in lead), keys]
    return random.random(shape[4 - rank :]) < 0.7


def _folded(array: np.ndarray) -> np.ndarray:
    """Return [batch, positions, heads · dim]."""
    batch, heads, positions, width = array.shape
    return array.transpose(0, 2, 1, 3).reshape(batch, positions, heads * width)


def _info(role: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        role, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def _one(random: np.random.Generator, *choices: Any) -> Any:
    return choices[random.integers(len(choices))]
