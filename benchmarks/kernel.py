"""Our kernels beside PyTorch's: times over those of SDPA, which gives the output alone.

    python benchmarks/kernel.py

Each kernel that this machine can run has a process of its own, and AVX2 two: SDPA keeps its
AVX-512 in the one, and is held to AVX2 as well in the other. In each turn everybody runs once; a
figure is the median of the ratios within the turns. It takes about six minutes.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedmap
from heedmap import compiled
from heedmap.doctor import examine
from heedmap.nn import SelfAttention

SIZES = ((1, 4096, 64), (8, 4096, 64), (8, 2048, 128), (1, 16384, 64), (1, 32768, 64))
SMALLEST, MEDIUM = SIZES[0], SIZES[1]
PICTURE = (512, 512)
SECONDS = 6.0
"""How long the turns of one size take, where that allows for five of them."""

Call = Callable[[], object]


class Lesson(nn.Module):
    """Attention as it is taught: every weight is made, and kept."""

    def __init__(self, input_dim: int, attn_dim: int) -> None:
        super().__init__()
        self.attn_dim = attn_dim
        self.w_q, self.w_k, self.w_v = (
            nn.Linear(input_dim, attn_dim, bias=False) for _ in range(3)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        query, key, value = self.w_q(x), self.w_k(x), self.w_v(x)
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.attn_dim)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        weights = F.softmax(scores, dim=-1)
        return torch.matmul(weights, value), weights


def ratios(base: Call, others: dict[str, Call], seconds: float = SECONDS) -> dict[str, float]:
    """Return the median of each one's time over that of `base` in the same turn."""
    found: dict[str, list[float]] = {name: [] for name in others}
    start, turns = time.perf_counter(), -1
    while turns < 5 or time.perf_counter() - start < seconds:
        turns += 1
        first = timed(base)
        for name, call in others.items():
            ratio = timed(call) / first
            if turns:
                found[name].append(ratio)
    return {name: statistics.median(taken) for name, taken in found.items()}


def timed(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def asking(inputs: list[Tensor], top: int) -> Call:
    asked = heedmap.Summary(top=top, pool=PICTURE)
    return lambda: heedmap.attention(*inputs, keep=asked)


def plain(size: tuple[int, int, int]) -> dict[str, float]:
    """Return the ratios without gradients of a problem without a mask."""
    inputs = list(torch.randn(3, 1, *size))
    return ratios(
        lambda: F.scaled_dot_product_attention(*inputs),
        {
            "output": lambda: heedmap.attention(*inputs),
            "with all": asking(inputs, 0),
            "with top": asking(inputs, 8),
        },
    )


def hidden(size: tuple[int, int, int]) -> dict[str, float]:
    """Return the ratios of causal, padded and grouped problems, each over SDPA's own."""
    heads, length, width = size
    query, key, value = torch.randn(3, 1, heads, length, width)
    few = [key[:, : heads // 4], value[:, : heads // 4]]
    valid = torch.arange(length)[None] < length * 7 // 8
    sdpa, padding = F.scaled_dot_product_attention, heedmap.Padding(valid)
    pairs: dict[str, tuple[Call, Call]] = {
        "causal": (
            lambda: sdpa(query, key, value, is_causal=True),
            lambda: heedmap.attention(query, key, value, mask=heedmap.Causal()),
        ),
        "padded": (
            lambda: sdpa(query, key, value, attn_mask=valid[:, None, None]),
            lambda: heedmap.attention(query, key, value, mask=padding),
        ),
        "grouped": (
            lambda: sdpa(query, *few, enable_gqa=True),
            lambda: heedmap.attention(query, *few),
        ),
    }
    return {name: ratios(one, {name: other})[name] for name, (one, other) in pairs.items()}


def learning(size: tuple[int, int, int]) -> dict[str, float]:
    """Return the ratio of forward and backward together."""
    inputs = [tensor.requires_grad_() for tensor in torch.randn(3, 1, *size)]
    upward = torch.randn_like(inputs[0])
    return ratios(
        lambda: F.scaled_dot_product_attention(*inputs).backward(upward),
        {"backward": lambda: heedmap.attention(*inputs)[0].backward(upward)},
    )


def lesson() -> dict[str, float]:
    """Return the ratios for five positions, over the module that keeps every weight."""
    ours, taught = SelfAttention(4, 8), Lesson(4, 8)
    x, mask = torch.randn(2, 5, 4), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with torch.no_grad():
        found = ratios(lambda: taught(x, mask), {"lesson": lambda: ours(x, mask)}, 2)
        found |= ratios(lambda: taught(x), {"unmasked": lambda: ours(x)}, 2)
    return found | ratios(lambda: taught(x, mask), {"learnt": lambda: ours(x, mask)}, 2)


IMPORTS = """
import time, torch
start = time.perf_counter()
import heedmap
print(time.perf_counter() - start)
heedmap.attention
print(time.perf_counter() - start)
for name in heedmap.__all__:
    getattr(heedmap, name)
print(time.perf_counter() - start)
"""


def imports(runs: int = 9) -> list[float]:
    """Return the seconds over those of torch of the import, of `attention`, of every name."""
    taken = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", IMPORTS], stdout=subprocess.PIPE, text=True, check=True
        )
        taken.append([float(line) for line in done.stdout.split()])
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def measure() -> dict[str, dict[str, float]]:
    """Return all ratios of this process by size."""
    torch.manual_seed(0)
    found: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        for size in SIZES:
            found[named(size)] = plain(size)
        found[named(MEDIUM)] |= hidden(MEDIUM)
    for size in (SMALLEST, MEDIUM):
        found[named(size)] |= learning(size)
    return found | {"2 x 5 positions": lesson()}


def named(size: tuple[int, int, int]) -> str:
    return "{} x {} x {}".format(*size)


def processes() -> dict[str, dict[str, str]]:
    """Return what each process is given in its environment."""
    made = {name: {"HEEDMAP_KERNEL": name} for name in compiled.runnable()}
    if "x86-64-v4" in made:
        made["v3, SDPA too"] = {"HEEDMAP_KERNEL": "x86-64-v3", "ATEN_CPU_CAPABILITY": "avx2"}
    return made | {"torch": {"HEEDMAP_KERNEL": "torch"}}


def main() -> None:
    if "--here" in sys.argv:
        print(json.dumps(measure()))
        return
    found = examine()
    print(f"torch {found['torch']}, {found['threads']} threads, float32; kernel: {found['kernel']}")
    import_alone, with_attention, with_all = (1000 * seconds for seconds in imports())
    print(
        f"import heedmap takes {import_alone:.1f} ms over import torch; with heedmap.attention "
        f"{with_attention:.0f} ms, with every public name {with_all:.0f} ms"
    )
    columns = {}
    for name, environment in processes().items():
        command = [sys.executable, __file__, "--here"]
        done = subprocess.run(
            command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
        )
        columns[name] = json.loads(done.stdout)
    print(f"\n{'heads x positions x width':28}", *(f"{name:>12}" for name in columns))
    first = next(iter(columns.values()))
    for kind in dict.fromkeys(kind for answers in first.values() for kind in answers):
        for size in (size for size, answers in first.items() if kind in answers):
            figures = (f"{answers[size][kind]:12.2f}" for answers in columns.values())
            print(f"{kind:10}{size:18}", *figures)


if __name__ == "__main__":
    main()
