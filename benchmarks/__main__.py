"""Everything side by side: `python -m benchmarks [--quick] [--minutes N]`.

Each contestant runs in each of many turns, in an order that changes from turn to turn, one at a
time. Written are `benchmarks/results.md`, `results.json` and `results.png`: medians, and the
quarter and three-quarter points of the ratios to PyTorch's fused kernel in the same turn. All of it
takes about half an hour; what does not fit into `--minutes` is left out, and named. 100,000
positions have a program of their own, `python -m benchmarks.long`.
"""

import argparse
import random
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.environments import PEERS, Process, python_of
from benchmarks.problems import Problem, all_problems
from benchmarks.report import Result, machine, title, write

HERE = Path(__file__).parent
SECONDS_OF_EACH = 1.0
TURNS = (5, 41)
"""How many turns there are at least and at most."""
PAUSE_SECONDS, SHORT_SECONDS = 0.01, 0.02
OPERATIONS_PER_SECOND = 1e11
"""What the contestants do on average, roughly, to foresee how long a problem takes."""


class Entrant(NamedTuple):
    """A contestant in a process."""

    label: str
    process: str
    name: str
    measured_against: str = "sdpa"


OURS = ("attention", "attention_summary", "attention_top")
ENTRANTS = [
    Entrant("sdpa", "here", "sdpa"),
    Entrant("sdpa_trained", "here", "sdpa_trained"),
    *(Entrant(name, "here", name) for name in OURS),
    Entrant("attention_trained", "here", "attention_trained", "sdpa_trained"),
    *(Entrant(f"{name}, AVX2", "avx2", name) for name in OURS),
    Entrant("attention_trained, AVX2", "avx2", "attention_trained", "sdpa_trained"),
    *(Entrant(f"{name}, without our kernel", "torch", name) for name in OURS),
    Entrant("eager", "here", "eager"),
    Entrant("eager and sums", "here", "eager_sums"),
    Entrant("nn.MultiheadAttention", "here", "multihead"),
    Entrant("flex_attention, compiled", "here", "flex"),
    Entrant("onnxruntime", "onnxruntime", "onnxruntime"),
    Entrant("onnxruntime, weights returned", "onnxruntime", "onnxruntime_weights"),
    Entrant("jax", "jax", "jax"),
]


def start() -> dict[str, Process]:
    """Return the processes, by name; those of peers only where these could be installed."""
    processes = {
        "here": Process(sys.executable),
        "avx2": Process(sys.executable, HEEDMAP_KERNEL="x86-64-v3"),
        "torch": Process(sys.executable, HEEDMAP_KERNEL="torch"),
    }
    for peer in PEERS:
        python = python_of(peer)
        if python is None:
            print(f"{peer} could not be installed and is left out.", file=sys.stderr)
        else:
            processes[peer] = Process(python)
    return processes


def measure(problem: Problem, processes: dict[str, Process]) -> list[Result]:
    """Return what each contestant that takes a problem needed for it."""
    ready: list[Entrant] = []
    for entrant in ENTRANTS:
        if entrant.process not in processes:
            continue
        refused = processes[entrant.process].prepare(entrant.name, problem)
        if refused is None:
            ready.append(entrant)
        elif refused:
            print(f"  {entrant.label}: {refused}", file=sys.stderr)
    once = {entrant: processes[entrant.process].run(entrant.name) for entrant in ready}
    fewest, most = TURNS
    turns = max(fewest, min(most, int(SECONDS_OF_EACH * len(ready) / sum(once.values()))))
    times: dict[str, list[float]] = {entrant.label: [] for entrant in ready}
    shuffled = random.Random(0)
    for _ in range(turns):
        shuffled.shuffle(ready)
        for entrant in ready:
            # The threads of the one before, which may be in another process, wait without sleep.
            time.sleep(PAUSE_SECONDS)
            if once[entrant] < SHORT_SECONDS:
                # Its own have fallen asleep meanwhile; waking them may take longer than it does.
                processes[entrant.process].run(entrant.name)
            times[entrant.label].append(processes[entrant.process].run(entrant.name))
    for entrant in ready:
        processes[entrant.process].drop(entrant.name)
    results = []
    for entrant in sorted(ready, key=ENTRANTS.index):
        own, theirs = times[entrant.label], times[entrant.measured_against]
        ratios = sorted(a / b for a, b in zip(own, theirs, strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        ratio = statistics.median(own) / statistics.median(theirs)
        results.append(Result(problem, entrant.label, statistics.median(own), ratio, low, high))
    return results


def foreseen(problem: Problem) -> float:
    """Return about how many seconds a problem takes."""
    call = problem.operations / OPERATIONS_PER_SECOND
    return len(ENTRANTS) * max(SECONDS_OF_EACH, (TURNS[0] + 2) * call)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="only problems of up to 2048 positions"
    )
    parser.add_argument("--longest", type=int, help="only problems of up to so many positions")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="how long it may take")
    parser.add_argument("--output", type=Path, default=HERE, help="the folder for the results")
    options = parser.parse_args()
    longest = options.longest or (2048 if options.quick else 32_768)
    problems = [problem for problem in all_problems() if problem.positions <= longest]
    processes = start()
    results: list[Result] = []
    left_out: list[Problem] = []
    found, end = machine(), time.monotonic() + 60 * options.minutes
    try:
        for problem in problems:
            if time.monotonic() + foreseen(problem) > end:
                left_out.append(problem)
                continue
            print(title(problem), file=sys.stderr)
            results += measure(problem, processes)
            write(options.output, found, results, left_out)
    finally:
        for process in processes.values():
            process.close()
    write(options.output, found, results, left_out)
    print(options.output / "results.md")


if __name__ == "__main__":
    main()
