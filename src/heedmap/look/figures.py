"""The figures of all heads of a run."""

from heedmap.analysis import figures
from heedmap.analysis.figures import HeadFigures
from heedmap.look.running import Run


def measure(run: Run) -> list[HeadFigures]:
    """Return the figures of every head, layer by layer; see `heedmap.analysis.figures.measure`."""
    maps = (layer.weights for layer in run.layers)
    return figures.measure(maps, run.axis, run.plain, run.sounding)
