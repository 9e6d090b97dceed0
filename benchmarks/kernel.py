"""Our kernel beside PyTorch's: plain, causal, and with gradients; alternating, medians, ratios.

python benchmarks/kernel.py
HEEDMAP_KERNEL=x86-64-v3 python benchmarks/kernel.py     # ours with AVX2 alone
"""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

import heedmap
from heedmap.doctor import examine

SIZES = ((1, 4096, 64), (8, 1024, 64), (8, 4096, 64), (8, 2048, 128))


def ratio(theirs: Callable[[], object], ours: Callable[[], object], runs: int) -> float:
    """Return the median time of ours over that of theirs."""
    times: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 1):
        for taken, call in zip(times, (theirs, ours), strict=True):
            start = time.perf_counter()
            call()
            if run:
                taken.append(time.perf_counter() - start)
    return statistics.median(times[1]) / statistics.median(times[0])


def ratios(heads: int, length: int, width: int) -> tuple[float, float, float]:
    """Return those of the forward pass, the causal one, and forward and backward together."""
    inputs = torch.randn(3, 1, heads, length, width).unbind()
    upward = torch.randn_like(inputs[0])
    runs = max(5, int(3e10 / (heads * length**2 * width)))
    sdpa, causal = F.scaled_dot_product_attention, heedmap.Causal()
    with torch.no_grad():
        forward = ratio(lambda: sdpa(*inputs), lambda: heedmap.attention(*inputs), runs)
        hidden = ratio(
            lambda: sdpa(*inputs, is_causal=True),
            lambda: heedmap.attention(*inputs, mask=causal),
            runs,
        )
    learnt = [tensor.clone().requires_grad_() for tensor in inputs]
    both = ratio(
        lambda: sdpa(*learnt).backward(upward),
        lambda: heedmap.attention(*learnt)[0].backward(upward),
        max(3, runs // 3),
    )
    return forward, hidden, both


def main() -> None:
    torch.manual_seed(0)
    found = examine()
    print(f"torch {found['torch']}, {found['threads']} threads, float32; kernel: {found['kernel']}")
    print("heads positions width  forward  causal  + backward")
    for size in SIZES:
        heads, length, width = size
        forward, causal, both = ratios(*size)
        print(f"{heads:5} {length:9} {width:5} {forward:8.2f} {causal:7.2f} {both:11.2f}")


if __name__ == "__main__":
    main()
