"""heedmap agrees with ONNX on the operator Attention, opsets 23 to 25.

With the 93 node tests of its suite, and with its reference evaluator on random problems; compared
by the suite's own function, with the suite's own tolerances.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from onnx import NodeProto
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase as Case
from onnx.backend.test.runner import Runner

from .onnx_attention import run
from .random_problems import Drawn, draw, evaluate

BACKENDS = ["auto", "tiles", "reference"]
SEEDS = range(400)


def _collect() -> list[Case]:
    with warnings.catch_warnings():
        # Collecting computes the cases of all operators; some of Cast's and others' overflow.
        warnings.filterwarnings(
            "ignore", category=RuntimeWarning, module=r"onnx\.backend\.test\.case\.node\."
        )
        cases = collect_testcases("Attention")
    return [case for case in cases if not case.name.endswith("_expanded")]


CASES = _collect()
RELATIVE, ABSOLUTE = CASES[0].rtol, CASES[0].atol


def test_the_suite_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 93
    opsets = Counter(case.model.opset_import[0].version for case in CASES)
    assert opsets == {23: 69, 24: 13, 25: 11}
    assert all((case.rtol, case.atol) == (RELATIVE, ABSOLUTE) for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    (node,) = case.model.graph.node
    ((inputs, outputs),) = case.data_sets
    require_agreement(node, inputs, outputs)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_problem(seed: int) -> None:
    problem = draw(seed)
    require_agreement(problem.node, problem.arrays, evaluate(problem))


def test_random_problems_have_everything_often() -> None:
    found = Counter(feature for seed in SEEDS for feature in _features(draw(seed)))
    assert len(found) == 32
    assert min(found.values()) >= len(SEEDS) / 20, found


def require_agreement(
    node: NodeProto, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> None:
    for backend in BACKENDS:
        answers = run(node, inputs, backend)
        try:
            Runner.assert_similar_outputs(outputs, answers, RELATIVE, ABSOLUTE)
        except AssertionError as error:
            error.add_note(f"backend: {backend}")
            raise


def _features(problem: Drawn) -> Iterator[str]:
    yield f"opset {problem.opset}"
    yield from problem.inputs
    yield from (name for name, value in problem.options.items() if value not in (0, -1))
    yield f"mode {problem.options['qk_matmul_output_mode']}"
    yield str(problem.inputs["Q"].dtype)
    if "attn_mask" in problem.inputs:
        mask = problem.inputs["attn_mask"]
        yield f"mask of {'booleans' if mask.dtype == bool else 'floats'}"
        yield f"mask of rank {mask.ndim}"
    if 0 in problem.inputs["Q"].shape:
        yield "a size of 0"
