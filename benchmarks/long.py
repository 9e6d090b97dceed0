"""100,000 positions: our output and all statistics beside PyTorch's output alone.

    python -m benchmarks.long [--positions N] [--turns N]

One head of width 64, two threads. Each way runs once in each turn; the ratio is the median of those
within the turns. Then each runs once in a process of its own, which says how much more memory it
held at its peak than before. It takes about five minutes.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import heedmap

WAYS = ("output", "output and summary", "output, summary and top 8")
MEGABYTE = 1_000_000


def inputs_of(positions: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(3, 1, 1, positions, 64).unbind()


def call(way: str, inputs: tuple[Tensor, ...]) -> None:
    """Do it once."""
    if way == WAYS[0]:
        F.scaled_dot_product_attention(*inputs)
    else:
        top = 8 if way == WAYS[2] else 0
        heedmap.attention(*inputs, keep=heedmap.Summary(top=top, pool=(512, 512)))


def timed(way: str, inputs: tuple[Tensor, ...]) -> float:
    start = time.perf_counter()
    call(way, inputs)
    return time.perf_counter() - start


def peak_bytes() -> int:
    """Return how much memory this program has held at once; getrusage counts that of its parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status must say VmHWM; it does not. Measure memory on Linux.")


def held(way: str, positions: int) -> int:
    """Return how many more bytes a process of its own holds at the peak of a call."""
    command = [sys.executable, "-m", "benchmarks.long", "--positions", str(positions)]
    done = subprocess.run([*command, "--held", way], stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long", description=__doc__)
    parser.add_argument("--positions", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--held", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(2)
    with torch.no_grad():
        call(options.held or WAYS[0], inputs_of(1000))
        inputs = inputs_of(options.positions)
        if options.held:
            before = peak_bytes()
            call(options.held, inputs)
            print(peak_bytes() - before)
            return
        turns = [[timed(way, inputs) for way in WAYS] for _ in range(options.turns)]
    for place, way in enumerate(WAYS):
        ratio = statistics.median(turn[place] / turn[0] for turn in turns)
        seconds = statistics.median(turn[place] for turn in turns)
        more = held(way, options.positions) / MEGABYTE
        who = "PyTorch" if place == 0 else "heedmap"
        print(f"{who}: {way:26}  {seconds:6.2f} s  ratio {ratio:.2f}  {more:6.1f} MB more")


if __name__ == "__main__":
    main()
