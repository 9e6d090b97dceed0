"""Times of attention with and without its map, in one run, alternating, medians.

    python benchmarks/core.py [--lengths 1024 4096] [--heads 1 8]

Each line gives milliseconds, and the ratio to PyTorch's scaled_dot_product_attention.
"""

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

import heedmap

WIDTH = 64
EAGER_BYTES = 3 << 30


def eager(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> object:
    weights = torch.softmax(query @ key.mT / WIDTH**0.5, dim=-1)
    return weights @ value, weights


def contestants(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> dict[str, Callable[[], object]]:
    def with_summary(**options: object) -> Callable[[], object]:
        return lambda: heedmap.attention(query, key, value)[1].summarize(**options)

    named: dict[str, Callable[[], object]] = {
        "sdpa": lambda: F.scaled_dot_product_attention(query, key, value),
        "attention": lambda: heedmap.attention(query, key, value),
    }
    if query.shape[1] * query.shape[2] ** 2 * 4 * 2 <= EAGER_BYTES:
        named["eager, weights kept"] = lambda: eager(query, key, value)
    named["attention + summarize()"] = with_summary()
    named["attention + summarize(top=8, pool=(512, 512))"] = with_summary(
        top=min(8, query.shape[2]), pool=(512, 512)
    )
    return named


def medians(named: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Return the median seconds of each, in turns; who follows whom changes from turn to turn.

    The garbage collector waits between the turns, as it does for `timeit`.
    """
    times: dict[str, list[float]] = {name: [] for name in named}
    turns = random.Random(0)
    order = list(named)
    for run in range(runs + 1):
        gc.enable()
        turns.shuffle(order)
        gc.disable()
        for name in order:
            call = named[name]
            start = time.perf_counter()
            call()
            if run:
                times[name].append(time.perf_counter() - start)
    gc.enable()
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--lengths", type=int, nargs="+", default=[5, 128, 1024, 4096, 16384])
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 8])
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, width {WIDTH}, float32")
    with torch.inference_mode():
        for heads in arguments.heads:
            for length in arguments.lengths:
                torch.manual_seed(0)
                inputs = [torch.randn(1, heads, length, WIDTH) for _ in range(3)]
                named = contestants(*inputs)
                runs = max(3, min(200, int(2e8 / (heads * length**2 + 1))))
                result = medians(named, runs)
                print(f"\n{heads} head(s), {length} positions, {runs} runs")
                for name, seconds in result.items():
                    ratio = seconds / result["sdpa"]
                    print(f"  {name:46} {seconds * 1e3:10.3f} ms {ratio:7.2f}")


if __name__ == "__main__":
    main()
