import itertools

import numpy as np
import pytest
import torch

from heedmap.axes import Axis
from heedmap.errors import ArgumentError, DTypeError, ShapeError
from heedmap.plot import plot_heatmap


def image_of(ax):
    return ax.images[0].get_array()


def bar_label(ax) -> str:
    return ax.get_figure().axes[-1].get_ylabel()


def test_small_weights_are_drawn_as_they_are_and_zeros_left_out():
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    image = image_of(plot_heatmap(weights))
    assert np.ma.getmaskarray(image).tolist() == [[False, True], [False, False]]
    assert image.compressed().tolist() == [1.0, 0.25, 0.75]


def test_queries_go_downwards_and_keys_to_the_right(causal):
    ax = plot_heatmap(causal(6)[:, :4])
    assert ax.get_ylim() == (5.5, -0.5)
    assert ax.get_xlim() == (-0.5, 3.5)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")


def test_a_large_map_is_drawn_as_means_of_equal_blocks():
    weights = torch.arange(1600.0 * 1600).reshape(1600, 1600)
    ax = plot_heatmap(weights)
    blocks = weights.reshape(800, 2, 800, 2).mean((1, 3))
    assert np.allclose(image_of(ax)[1:], blocks[1:])
    assert "mean of 2 × 2 cells" in bar_label(ax)


def test_a_lazy_map_is_asked_for_no_more_than_is_drawn(causal, lazy):
    weights = lazy(causal(1000))
    ax = plot_heatmap(weights)
    assert weights.asked == [(500, 500)]
    assert image_of(ax).shape == (500, 500)


def test_a_clipped_scale_says_where_and_how_far(causal):
    label = bar_label(plot_heatmap(causal(64)))
    assert "cut at" in label
    assert "the largest is 1" in label


def test_grey_is_explained_only_where_it_is_drawn(causal, drawn):
    assert "exactly 0" in [text for text, _ in drawn(plot_heatmap(causal(5)))]
    assert "exactly 0" not in [text for text, _ in drawn(plot_heatmap(torch.ones(5, 5) / 5))]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "weights",
    [
        torch.zeros(3, 5),
        torch.ones(1, 1),
        torch.tensor([[0.0, 0.0], [0.5, 0.5]]),
        torch.full((1, 900), 1 / 900),
        torch.rand(900, 1),
        torch.tensor([[1.0, 1e-30]]),
    ],
)
def test_odd_maps_are_drawn(weights, log, drawn):
    assert drawn(plot_heatmap(weights, log=log))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_floating_type_is_drawn(dtype):
    assert image_of(plot_heatmap(torch.rand(900, 4).to(dtype))).shape == (450, 4)


def test_weights_that_need_a_gradient_are_drawn():
    assert plot_heatmap(torch.rand(3, 3, requires_grad=True)).images


def test_tokens_are_labelled_and_formulas_are_not_parsed(sentence, causal, drawn):
    labels = ["$a", "b_1$", "$\\frac", "<s>", "x", "y", "z"]
    keys = Axis.of_tokens("", labels, [(0, 0)] * 7)
    ax = plot_heatmap(causal(7), query_axis=sentence, key_axis=keys, title="$x")
    texts = [text for text, _ in drawn(ax)]
    assert set(labels) | set(sentence.labels) | {"$x"} <= set(texts)


def test_times_are_round(sound, drawn):
    ax = plot_heatmap(torch.rand(1500, 1500), query_axis=sound, key_axis=sound)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "5", "10", "15", "20", "25", "30"]
    assert ax.get_ylabel() == "query (seconds)"
    assert drawn(ax)


@pytest.mark.parametrize("size", [7, 40, 64])
def test_nothing_is_cut_off_and_labels_do_not_touch(size, causal, drawn):
    words = ["committee", "the", ",", "residents"] * 16
    axis = Axis.of_tokens("", words[:size], [(0, 0)] * size)
    ax = plot_heatmap(causal(size), query_axis=axis, key_axis=axis, title="layer 2, head 1")
    boxes = dict(drawn(ax)).values()
    figure = ax.get_figure().bbox
    assert all(figure.x0 <= b.x0 and b.x1 <= figure.x1 for b in boxes)
    assert all(figure.y0 <= b.y0 and b.y1 <= figure.y1 for b in boxes)
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        extents = [label.get_window_extent() for label in ticks]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(extents))


def test_titles_are_not_cut_to_the_length_of_labels():
    title = "encoder layer 2, head 1: what each moment looks at"
    assert plot_heatmap(torch.eye(2), title=title).get_title() == title


def test_few_broad_cells_are_not_smoothed():
    assert plot_heatmap(torch.rand(1000, 2)).images[0].get_interpolation() == "nearest"


def test_given_axes_are_used(causal):
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert plot_heatmap(causal(3), ax=ax) is ax


@pytest.mark.bad_input
@pytest.mark.parametrize("shape", [(4,), (1, 4, 4), (1, 1, 4, 4)])
def test_one_matrix_is_wanted(shape):
    with pytest.raises(ShapeError, match=r"weights must be \[query, key\]; got .*weights\[0, 3\]"):
        plot_heatmap(torch.rand(shape))


def test_empty_maps_are_refused():
    with pytest.raises(ShapeError, match="no empty dimension"):
        plot_heatmap(torch.rand(0, 4))


def test_an_axis_of_another_size_is_refused(sentence):
    with pytest.raises(ShapeError, match="key_axis must have one label for each key; got 7"):
        plot_heatmap(torch.rand(7, 8), query_axis=sentence, key_axis=sentence)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_refused(value):
    with pytest.raises(ArgumentError, match="weights must be finite; got"):
        plot_heatmap(torch.tensor([[0.5, value]]))


def test_scores_are_refused():
    with pytest.raises(
        ArgumentError,
        match=r"weights must be 0 or more; got -2\. Pass what comes out of the softmax",
    ):
        plot_heatmap(torch.tensor([[0.5, -2.0]]))


@pytest.mark.bad_input
def test_integers_are_refused():
    with pytest.raises(DTypeError, match="weights must be floating point"):
        plot_heatmap(torch.ones(2, 2, dtype=torch.int64))
