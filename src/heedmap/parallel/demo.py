"""Half an hour of sound on several processes, and on one: the same answers.

``torchrun --nproc-per-node 2 -m heedmap.parallel.demo RECORDING`` looks at features of the sound,
one position every 20 ms, 90,000 for half an hour. Each rank has its part of them; every position
looks at those of the whole recording. Then rank 0 does it all by itself, and prints how far the
answers lie apart, the time, and the peak of memory on each rank.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from heedmap.attention import attention as attention_on_one
from heedmap.errors import HeedmapError
from heedmap.parallel.attend import attention
from heedmap.parallel.layout import Layout
from heedmap.parallel.members import Members
from heedmap.parallel.starting import start, stop
from heedmap.summary import Summary

TOLERANCE = 1e-5
"""How far answers may lie apart, in units of the largest: what float32 keeps of sums."""

HOP_SECONDS = 0.02
SCALE = 10.0
"""1 / `heedmap.media.Sound.temperature`."""

TOP, PICTURE = 3, (64, 64)
MIB = 2**20
T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """What something took: time, and the peak of the process's memory before and after."""

    seconds: float
    before_bytes: int
    peak_bytes: int

    def __str__(self) -> str:
        """Say both."""
        more = (self.peak_bytes - self.before_bytes) / MIB
        return (
            f"{self.seconds:8.1f} s   {self.peak_bytes / MIB:6.0f} MiB, {more:.0f} more than before"
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; return 0 if the answers are the same, else 1."""
    options = _parser().parse_args(arguments)
    mesh = start(device="cpu")
    members = Members.of(mesh)
    torch.set_num_threads(max((os.cpu_count() or 1) // members.size, 1))
    try:
        same = _compare(members, options.recording, options.seconds)
    except HeedmapError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        stop()
    return 0 if same else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchrun --nproc-per-node 2 -m heedmap.parallel.demo", description=__doc__
    )
    parser.add_argument("recording", type=Path, help="a file of sound, or a film with sound")
    parser.add_argument("--seconds", type=float, default=1800.0, help="how much of it: %(default)s")
    return parser


def _compare(members: Members, recording: Path, seconds: float) -> bool:
    """Print the answers' differences on rank 0; return whether they are the same."""
    first = members.rank == 0
    values, error = torch.empty(0, 0), None
    try:
        if first:
            values = _features(recording, seconds)
    except HeedmapError as refused:
        error = refused
    size, width = members.agree("the demo", values.shape, error)[0]
    layout = Layout.even(size, members.size)
    own = _own_part(members, layout, values, width)
    if first:
        print(f"{size} positions on {members.size} ranks …", file=sys.stderr, flush=True)
    (output, summary), cost = _measured(lambda: _on_all(own, members, layout))
    costs, outputs = members.gather(cost), members.gather(output)
    same = True
    if first:
        print("the same on one …", file=sys.stderr, flush=True)
        torch.set_num_threads(os.cpu_count() or 1)
        (expected, known), alone = _measured(lambda: _on_one(values[None, None]))
        print(f"{recording.name}: {size} positions of {HOP_SECONDS:g} s, {width} features")
        assert summary is not None
        same = _print_differences(layout.whole(outputs, dim=2), summary, expected, known)
        for rank, cost in enumerate(costs):
            print(f"rank {rank} of {members.size}  {cost}")
        print(f"one process  {alone}")
        print("the same" if same else "NOT the same", flush=True)
    # The others wait here, and not for a process that has ended.
    return members.gather(same)[0]


def _on_all(own: Tensor, members: Members, layout: Layout) -> tuple[Tensor, Summary | None]:
    """Return the output of this rank's positions and, on rank 0, all answers."""
    output, weights = attention(own, own, own, scale=SCALE, mesh=members.group, layout=layout)
    return output, weights.gather_summary(top=TOP, pool=PICTURE)


def _on_one(whole: Tensor) -> tuple[Tensor, Summary]:
    output, weights = attention_on_one(whole, whole, whole, scale=SCALE)
    return output, weights.summarize(top=TOP, pool=PICTURE)


def _features(recording: Path, seconds: float) -> Tensor:
    """Return the features of a sound, one row for each position."""
    from heedmap.media import Sound

    sound = Sound.of_file(recording)
    samples = sound.samples[: round(seconds * sound.sample_rate_hz)]
    return Sound(samples, sound.sample_rate_hz, sound.name).sequence(hop_seconds=HOP_SECONDS).values


def _own_part(members: Members, layout: Layout, values: Tensor, width: int) -> Tensor:
    """Return this rank's part of what rank 0 has, ``[1, 1, positions, features]``."""
    if members.rank == 0:
        parts = [layout.shard(values, rank, dim=0).contiguous() for rank in range(members.size)]
        members.exchange(sent=list(enumerate(parts))[1:]).wait()
        return parts[0][None, None]
    own = torch.empty(layout.lengths[members.rank], width)
    members.exchange(received=[(0, own)]).wait()
    return own[None, None]


def _print_differences(found: Tensor, summary: Summary, expected: Tensor, known: Summary) -> bool:
    """Print how far each answer lies from that of one process; return whether all are near."""
    pairs = {
        "output": (found, expected),
        "received": (summary.received, known.received),
        "entropy": (summary.entropy, known.entropy),
        "top 3 weights": (summary.top_weights, known.top_weights),
        "64 × 64 means": (summary.pooled, known.pooled),
    }
    same = True
    for name, (mine, theirs) in pairs.items():
        assert mine is not None
        assert theirs is not None
        apart, largest = float((mine - theirs).abs().amax()), float(theirs.abs().amax())
        same = same and apart <= TOLERANCE * largest
        print(f"{name:14}  largest difference {apart:.1e} of {largest:.3g}")
    assert summary.top_keys is not None
    assert known.top_keys is not None
    others = int((summary.top_keys != known.top_keys).sum())
    print(f"{'top 3 keys':14}  {others} of {known.top_keys.numel()} differ")
    return same


def _measured(work: Callable[[], T]) -> tuple[T, Cost]:
    _forget_peak()
    before, began = _peak_bytes(), time.perf_counter()
    made = work()
    return made, Cost(time.perf_counter() - began, before, _peak_bytes())


def _forget_peak() -> None:
    """Let the peak of memory be what is used now, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    raise SystemExit(main())
