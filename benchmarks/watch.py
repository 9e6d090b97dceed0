"""What watching a model costs: times in one run, alternating, medians; peaks of memory.

    python benchmarks/watch.py [--models text llama] [--runs 9]

Contestants: the model alone; watched, factors kept; watched, reduced to a summary while it runs;
and the model on its slow path with ``output_attentions=True``, which makes and keeps every weight.
Memory is measured in a process for each.
"""

import argparse
import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import heedmap

Model = tuple[Any, Any, dict[str, torch.Tensor]]


def text_model(length: int = 512) -> Model:
    """The packaged E5, at as many tokens as it takes."""
    from heedmap.models.hub import load_text_model

    fused = load_text_model().model
    torch.manual_seed(0)
    ids = torch.randint(5, 200_000, (1, length))
    return fused, slow_twin(fused), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def llama(length: int = 4096) -> Model:
    """A Llama of two layers, eight heads of width 64, at 4096 tokens."""
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=16384,
    )
    fused = LlamaModel(config).eval()
    ids = torch.randint(0, 1000, (1, length))
    return fused, slow_twin(fused), {"input_ids": ids}


def slow_twin(fused: Any) -> Any:
    """The same model, sharing its weights, that computes attention the slow way."""
    import copy

    memo = {id(p): p for p in (*fused.parameters(), *fused.buffers())}
    twin = copy.deepcopy(fused, memo)
    twin.set_attn_implementation("eager")
    return twin


MODELS: dict[str, Callable[..., Model]] = {"text": text_model, "llama": llama}
PEAKS = {"text": [256, 512], "llama": [2048, 4096, 8192]}


def contestants(fused: Any, slow: Any, inputs: dict[str, Any]) -> dict[str, Callable[[], object]]:
    def watched(**options: Any) -> Callable[[], object]:
        def run() -> object:
            with heedmap.watch(fused, **options) as seen:
                fused(**inputs)
            return seen

        return run

    return {
        "alone": lambda: fused(**inputs),
        "watched": watched(),
        "watched, reduced": watched(keep=heedmap.Summary()),
        "slow, weights kept": lambda: slow(**inputs, output_attentions=True).attentions,
    }


def medians(named: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in named}
    order, turns = list(named), random.Random(0)
    for run in range(runs + 1):
        turns.shuffle(order)
        gc.collect()
        for name in order:
            start = time.perf_counter()
            named[name]()
            if run:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def peak_mib(model: str, name: str, length: int) -> float:
    """Return by how much one call raises the peak of resident memory, in a process of its own."""
    options = ["--peak", model, name, str(length)]
    done = subprocess.run(
        [sys.executable, __file__, *options], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def measure_peak(model: str, name: str, length: str) -> None:
    made = MODELS[model](int(length))
    call = contestants(*made)[name]
    with torch.no_grad():
        # A short run first, so that what is loaded on the way does not count.
        short = {key: value[:, :16] for key, value in made[2].items()}
        contestants(made[0], made[1], short)[name]()
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        before = peak_kib()
        kept = call()
    del kept
    print((peak_kib() - before) / 1024)


def peak_kib() -> int:
    """Return the highest resident memory since the peak was last reset (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if "VmHWM" in line).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--peak", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        measure_peak(*arguments.peak)
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32")
    for model in arguments.models:
        with torch.no_grad():
            named = contestants(*MODELS[model]())
            result = medians(named, arguments.runs)
        print(f"\n{model}, {arguments.runs} runs; peak memory at {PEAKS[model]}")
        for name, seconds in result.items():
            peaks = "".join(f"{peak_mib(model, name, n):8.0f} MiB" for n in PEAKS[model])
            print(f"  {name:20} {seconds * 1e3:9.1f} ms {seconds / result['alone']:6.2f} {peaks}")


if __name__ == "__main__":
    main()
