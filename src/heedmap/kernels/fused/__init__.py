"""PyTorch's fused kernels, which give the log-normaliser beside the output.

`cpu` has the one for CPUs; `cuda` those for GPUs, each of which is checked before it is believed.
"""

from jaxtyping import Float
from torch import Tensor

from heedmap.kernels.fused import cpu, cuda
from heedmap.kernels.fused.cpu import backward as backward
from heedmap.problem import Problem


def serves(problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]) -> bool:
    """Return whether a fused kernel computes this problem exactly as promised."""
    return cpu.serves(problem, value) or cuda.serves(problem, value)


def forward(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
]:
    """Return the output and the log-normaliser.

    Cost: that of the fused kernel; for memory see `cpu.forward` and `cuda.forward`.
    """
    device = cpu if problem.query.is_cpu else cuda
    return device.forward(problem, value)
