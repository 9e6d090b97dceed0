"""The results as pictures, whose words are in Chinese and in English."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedmap.lesson.claims.curves import Curves
from heedmap.plot.figures import require_matplotlib, save_figure
from heedmap.plot.fonts import find_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "attention": "#d9780c",
    "lstm": "#0b5cad",
    "gru": "#2a9db5",
    "cnn": "#5b4a9e",
    "scaled": "#d9780c",
    "unscaled": "#59636e",
}
NAMES = {
    "attention": "自注意力 self-attention",
    "lstm": "LSTM",
    "gru": "GRU",
    "cnn": "空洞卷积 dilated CNN",
    "scaled": "÷ √d",
    "unscaled": "不除 not divided",
}
STYLES = {
    "attention": "o-",
    "lstm": "s-",
    "gru": "^-",
    "cnn": "D-",
    "scaled": "o-",
    "unscaled": "s-",
}


@dataclass(frozen=True)
class Chart:
    """How one result is drawn.

    Attributes:
        title: What it shows.
        across: What goes from left to right.
        up: What goes upwards.
        doubling: Whether steps across double.
        tenfold: Whether steps upwards are tenfold.
    """

    title: str
    across: str
    up: str
    doubling: bool = True
    tenfold: bool = False


DISTANCE = "D：相隔几步 steps back"
LENGTH = "T：序列长度 positions"
CHARTS = {
    "recall": Chart("答案在 D 步之前 The answer lies D steps back", DISTANCE, "答对 accuracy"),
    "steps": Chart(
        "两个位置之间隔几步运算 Operations between two positions", DISTANCE, "", tenfold=True
    ),
    "reach": Chart("梯度传回多少 Share of the gradient that arrives", DISTANCE, "", tenfold=True),
    "learning": Chart("学一遍的时间 Time to learn from it", LENGTH, "ms", tenfold=True),
    "reading": Chart("读一遍的时间 Time to read it", LENGTH, "ms", tenfold=True),
    "sharpness_by_width": Chart(
        "d 越大，不除就越尖 Sharper with d", "d", "最大权重 largest weight"
    ),
    "loss": Chart("训练：损失 Training: loss", "批 batches", "", doubling=False),
    "gradient": Chart(
        "训练：W_Q、W_K 的梯度 Gradient of W_Q, W_K", "批 batches", "", doubling=False, tenfold=True
    ),
    "sharpness": Chart("训练：最大权重 Training: largest weight", "批 batches", "", doubling=False),
}
PICTURES = {
    "recall": ("recall",),
    "reach": ("steps", "reach"),
    "pace": ("learning", "reading"),
    "scale": ("sharpness_by_width", "loss", "gradient", "sharpness"),
}
"""The pictures, and the results that each of them shows."""

INCHES = (5.4, 3.9)
LEAST_SHOWN = 1e-9
"""Gradients smaller than this are drawn at this place."""


def draw_pictures(results: dict[str, Curves], folder: Path) -> None:
    """Write the pictures into a folder.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    words = [*NAMES.values(), *(w for c in CHARTS.values() for w in (c.title, c.across, c.up))]
    families = find_fonts(words).families
    for name, shown in PICTURES.items():
        columns = min(2, len(shown))
        rows = -(-len(shown) // columns)
        with matplotlib.rc_context({"font.family": list(families), "font.size": 10}):
            size = (INCHES[0] * columns, INCHES[1] * rows)
            figure = Figure(size, dpi=150, layout="constrained")
            axes: Any = figure.subplots(rows, columns, squeeze=False).flatten()
            for ax, which in zip(axes, shown, strict=True):
                _draw(ax, results[which], CHARTS[which])
            save_figure(figure, folder / f"{name}.png")


def _draw(ax: Axes, curves: Curves, chart: Chart) -> None:
    for name, line in curves.as_json()["series"].items():
        up = [max(mean, LEAST_SHOWN) if chart.tenfold else mean for mean in line["mean"]]
        # On a scale of tens, a bar down to 0 would have no end.
        down = [
            min(s, 0.9 * m) if chart.tenfold else s for s, m in zip(line["spread"], up, strict=True)
        ]
        ax.errorbar(
            curves.x,
            up,
            yerr=[down, line["spread"]],
            fmt=STYLES[name],
            color=COLOURS[name],
            label=NAMES[name],
            markersize=4,
            capsize=2.5,
            linewidth=1.6,
        )
    if chart.doubling:
        ax.set_xscale("log", base=2)
        ax.set_xticks(curves.x, [f"{x:g}" for x in curves.x])
    if chart.tenfold:
        ax.set_yscale("log")
    if "chance" in curves.facts:
        ax.axhline(curves.facts["chance"], color="#999", linestyle=":", linewidth=1)
    ax.set_title(chart.title, fontsize=11)
    ax.set_xlabel(chart.across)
    ax.set_ylabel(chart.up)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=9, framealpha=0.8)
