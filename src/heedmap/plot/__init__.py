"""Pictures of attention: heat map, atlas of all heads, arcs over a text, timeline, speakers.

Every ``plot_*`` function takes an ``AttentionMap`` or an ordinary tensor of weights (that of
speakers takes turns) and gives back matplotlib axes, on a figure of their own unless it is given
some. No picture asks a map for more cells than it draws. A figure belongs to no global list, so
nothing needs closing; in a notebook, ``axes.figure`` shows it.
"""

from heedmap.plot.arcs import plot_arcs
from heedmap.plot.atlas import plot_atlas
from heedmap.plot.figures import save_figure
from heedmap.plot.fonts import Fonts, find_fonts
from heedmap.plot.heatmap import plot_heatmap
from heedmap.plot.speakers import plot_speakers
from heedmap.plot.timeline import plot_timeline

__all__ = [
    "Fonts",
    "find_fonts",
    "plot_arcs",
    "plot_atlas",
    "plot_heatmap",
    "plot_speakers",
    "plot_timeline",
    "save_figure",
]
