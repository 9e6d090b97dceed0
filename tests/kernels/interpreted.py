"""A process in which Triton runs its kernels without a GPU, and how tests ask it.

Triton decides when it is imported whether it interprets, and changes its own language when it does,
so it does that in a process of its own, which has no kernel of ours for CPUs either.
"""

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Interpreter:
    """The process, from outside."""

    def __init__(self, **environment: str) -> None:
        """Start it; imports take a few seconds."""
        given = {"TRITON_INTERPRET": "1", "HEEDMAP_KERNEL": "torch", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | given | environment,
        )

    def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return what a function of heedmap, or of this file, returns there."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        name = "" if function.__module__ == __name__ else function.__module__
        pickle.dump((name, function.__name__, args, options), self.process.stdin)
        self.process.stdin.flush()
        returned, raised = pickle.load(self.process.stdout)
        assert not raised, raised
        return returned

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0
        if self.process.stdout is not None:
            self.process.stdout.close()


def summary_of(*inputs: Any, **options: Any) -> Any:
    """Return the answers of `attention(keep=Summary)`, and how often Triton gave statistics."""
    import heedmap
    from heedmap.kernels import triton

    calls = []
    gather = triton.statistics

    def counted(*args: Any, **asked: Any) -> Any:
        calls.append(args)
        return gather(*args, **asked)

    triton.statistics = counted
    try:
        found = heedmap.attention(*inputs, **options)[1]
    finally:
        triton.statistics = gather
    return found.answers, len(calls)


def tried(dtype: Any) -> bool:
    """Return whether the kernel passes the trial that it has to on a GPU."""
    import torch

    from heedmap.kernels import triton
    from heedmap.kernels.triton import trial

    return trial.is_right(triton.statistics, torch.device("cpu"), dtype, 12)


def answer() -> None:
    """Call what comes in, and send back what it returns, until nothing more comes."""
    import importlib
    import warnings

    # What NumPy says about Triton's interpreter is no concern of ours.
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            name, function, args, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            module = importlib.import_module(name) if name else sys.modules["__main__"]
            sent = getattr(module, function)(*args, **options), ""
        except Exception:
            sent = None, traceback.format_exc()
        pickle.dump(sent, out)
        out.flush()


if __name__ == "__main__":
    answer()
