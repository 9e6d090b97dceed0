"""Axes, weights, and a stand-in for a lazy map that the tests of pictures share."""

import pytest
import torch
from torch import Tensor

from heedmap.axes import Axis


class LazyMap(torch.Tensor):
    """Weights that may be pooled, selected and asked for their largest, but never made dense.

    `asked` holds the size of each picture that was asked for.
    """

    asked: list[tuple[int, int]]

    @staticmethod
    def of(weights: Tensor) -> "LazyMap":
        lazy = weights.as_subclass(LazyMap)
        lazy.asked = []
        return lazy

    def pool(self, rows: int, columns: int) -> Tensor:
        self.asked.append((rows, columns))
        dense = self.as_subclass(Tensor)
        flat = dense.reshape(1, -1, *dense.shape[-2:])
        pooled = torch.nn.functional.adaptive_avg_pool2d(flat, (rows, columns))
        return pooled.reshape(*dense.shape[:-2], rows, columns)

    def to_dense(self, *_: object) -> Tensor:
        if self.ndim > 1:
            raise AssertionError("a picture asked for the dense map")
        return self.as_subclass(Tensor)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        values, keys = self.as_subclass(Tensor).topk(k)
        return values, keys

    def cpu(self, *_: object) -> Tensor:
        raise AssertionError("a picture copied the dense map")

    def float(self) -> Tensor:
        raise AssertionError("a picture copied the dense map")


@pytest.fixture
def sentence() -> Axis:
    text = "他说他今天不能来"
    offsets = [(0, 0), (0, 2), (2, 3), (3, 5), (5, 7), (7, 8), (8, 8)]
    return Axis.of_tokens(text, ["<s>", "他说", "他", "今天", "不能", "来", "</s>"], offsets)


@pytest.fixture
def sound() -> Axis:
    return Axis.of_seconds([(i * 0.02, i * 0.02 + 0.025) for i in range(1500)])


def causal_weights(size: int, seed: int = 0) -> Tensor:
    scores = torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    hidden = torch.ones(size, size, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


@pytest.fixture
def causal():
    return causal_weights


@pytest.fixture
def lazy():
    return LazyMap.of


@pytest.fixture
def drawn():
    """Draw the figure and return its texts with their boxes; warnings fail the test."""

    def draw(ax):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.text import Text

        figure = ax.get_figure(root=True)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
        return [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in texts]

    return draw
