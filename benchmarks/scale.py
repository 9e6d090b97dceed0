"""What attention over 1 to 100 million positions would take on 8 to 512 GPUs, on paper.

    python -m benchmarks.scale [--measured gpu.json] [--write docs/scale.md]

Ring attention: each GPU holds a shard of the positions, keys and values go round, and are computed
with while the next ones come. It is one layer, causal, shards paired so that all have as much to do
(zig-zag). Nothing is measured here: the rates are published ones, or those that `benchmarks.gpu`
wrote. With ``--write`` the tables go into a file, between its markers.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

LENGTHS, COUNTS = (10**6, 10**7, 10**8), (8, 32, 128, 512)
START, END = "<!-- scale: start -->", "<!-- scale: end -->"


@dataclass(frozen=True)
class Device:
    """A GPU and what connects it to others. Where the rates come from stands in docs/scale.md."""

    name: str
    output_operations_per_second: float
    """What the flash kernel reaches, causal, width 128."""
    statistics_seconds_per_cell: float
    memory_bytes: float = 80e9
    node: int = 8
    node_bytes_per_second: float = 450e9
    network_bytes_per_second: float = 50e9

    def bytes_per_second(self, count: int) -> float:
        """Return the rate of the slowest link of a ring."""
        return self.node_bytes_per_second if count <= self.node else self.network_bytes_per_second


PRODUCTS, INSTRUCTIONS, EXPONENTIALS = 378e12, 33.5e12, 3.9e12
"""Of an H100, each second: in a Triton kernel's products; in its other arithmetic; and powers."""

INSTRUCTIONS_PER_CELL = 16
"""Scale and shift, mask, weight times logarithm, sums along rows and columns, comparisons."""


def statistics_per_cell(width: int) -> float:
    """Return the seconds that the statistics of a weight take where nothing overlaps."""
    products = 2 * width / PRODUCTS
    return products + INSTRUCTIONS_PER_CELL / INSTRUCTIONS + 1 / EXPONENTIALS


@dataclass(frozen=True)
class Layer:
    """One layer's attention, in bfloat16, and what is asked about it."""

    heads: int = 32
    kv_heads: int = 8
    width: int = 128
    top: int = 8

    def cells(self, positions: int) -> float:
        """Return how many weights there are that are not hidden."""
        return self.heads * positions * positions / 2

    def key_value_bytes(self, positions: float) -> float:
        """Return what goes round for the output: keys and values."""
        return 2 * positions * self.kv_heads * self.width * 2

    def key_sum_bytes(self, positions: float) -> float:
        """Return what goes round for the statistics: keys, and what they have received so far."""
        return positions * (self.kv_heads * self.width * 2 + self.heads * 4)

    def memory_bytes(self, positions: float) -> float:
        """Return what a GPU holds for its positions.

        Queries and output, the output in float32 while it is merged, keys and values three times
        (own, in use, on their way), the log-normaliser, and the answers: received, entropy, top.
        """
        wide = self.heads * self.width
        numbers = positions * (2 * wide * 2 + wide * 4 + self.heads * 4)
        answers = positions * self.heads * (4 + 4 + self.top * 12)
        return numbers + 3 * self.key_value_bytes(positions) + answers


@dataclass(frozen=True)
class Plan:
    """A layer of so many positions on so many GPUs."""

    device: Device
    layer: Layer
    positions: int
    count: int

    @property
    def shard(self) -> float:
        """Positions for each GPU."""
        return self.positions / self.count

    @property
    def output_seconds(self) -> float:
        """How long the output takes, transfers included."""
        cell = 4 * self.layer.width / self.device.output_operations_per_second
        return self._round(cell, self.layer.key_value_bytes(self.shard))

    @property
    def statistics_seconds(self) -> float:
        """How long the pass of the statistics takes after that."""
        cell = self.device.statistics_seconds_per_cell
        return self._round(cell, self.layer.key_sum_bytes(self.shard))

    @property
    def sent_bytes(self) -> float:
        """What each GPU sends in both passes."""
        each = self.layer.key_value_bytes(self.shard) + self.layer.key_sum_bytes(self.shard)
        return (self.count - 1) * each

    @property
    def waits(self) -> float:
        """How much longer a step's transfer takes than its work; below 1 it is hidden."""
        return self._transfer(self.layer.key_value_bytes(self.shard)) / self._work(
            4 * self.layer.width / self.device.output_operations_per_second
        )

    @property
    def memory_bytes(self) -> float:
        """What each GPU holds."""
        return self.layer.memory_bytes(self.shard)

    def _work(self, cell_seconds: float) -> float:
        """Return the seconds of one step's work: each GPU has as much in each."""
        return self.layer.cells(self.positions) / self.count**2 * cell_seconds

    def _transfer(self, step_bytes: float) -> float:
        return step_bytes / self.device.bytes_per_second(self.count)

    def _round(self, cell_seconds: float, step_bytes: float) -> float:
        """Return the seconds of a whole round; the last step's work needs no transfer."""
        work = self._work(cell_seconds)
        return work + (self.count - 1) * max(work, self._transfer(step_bytes))


H100_FA2 = Device("H100, FlashAttention-2", 335e12, statistics_per_cell(128))
H100_FA3 = replace(H100_FA2, name="H100, FlashAttention-3", output_operations_per_second=616e12)


def least_shard(device: Device, layer: Layer, count: int) -> float:
    """Return the positions for each GPU from which on transfers are hidden behind the output."""
    cell = 4 * layer.width / device.output_operations_per_second
    work = layer.heads / 2 * cell
    return layer.key_value_bytes(1) / device.bytes_per_second(count) / work


def duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"


def table(device: Device, layer: Layer) -> str:
    """Return the plan for a device as a table of Markdown."""
    lines = [
        f"**{device.name}**: output at {device.output_operations_per_second / 1e12:.0f} TFLOP/s, "
        f"statistics at {1e12 * device.statistics_seconds_per_cell:.2f} ps for each weight. "
        f"Transfers are hidden from {least_shard(device, layer, device.node):,.0f} positions for "
        f"each GPU on within a node, and from {least_shard(device, layer, device.node + 1):,.0f} "
        "on across nodes.",
        "",
        "| positions | GPUs | for each GPU | output | statistics | sent by each | transfer over "
        "work | memory of each |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for positions in LENGTHS:
        for count in COUNTS:
            plan = Plan(device, layer, positions, count)
            memory = f"{plan.memory_bytes / 1e9:,.1f} GB"
            if plan.memory_bytes > device.memory_bytes:
                memory += ": too much"
            lines.append(
                f"| {positions // 10**6} million | {count} | {plan.shard:,.0f} | "
                f"{duration(plan.output_seconds)} | {duration(plan.statistics_seconds)} | "
                f"{plan.sent_bytes / 1e9:,.1f} GB | {plan.waits:.2f} | {memory} |"
            )
    return "\n".join(lines) + "\n"


def measured(path: Path) -> Device:
    """Return a device with the figures that `benchmarks.gpu` wrote, and an H100's links."""
    figures = json.loads(path.read_text(encoding="utf-8"))
    return Device(
        f"{figures['device']}, measured",
        figures["output_operations_per_second"],
        figures["statistics_seconds_per_cell"],
    )


def tables(devices: list[Device]) -> str:
    return "\n".join(table(device, Layer()) for device in devices)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--measured", type=Path, help="what benchmarks.gpu --json wrote")
    parser.add_argument("--write", type=Path, help="a file that has the two markers")
    options = parser.parse_args()
    devices = [H100_FA2, H100_FA3]
    if options.measured is not None:
        devices = [measured(options.measured)]
    made = tables(devices)
    if options.write is None:
        print(made)
    else:
        before, rest = options.write.read_text(encoding="utf-8").split(START)
        after = rest.split(END)[1]
        options.write.write_text(f"{before}{START}\n\n{made}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
