import itertools

import pytest
import torch

from heedmap.axes import Axis
from heedmap.errors import ArgumentError, ShapeError
from heedmap.plot import plot_arcs


def tokens(size: int) -> Axis:
    words = ["committee", "the", ",", "residents", "of"]
    return Axis.of_tokens("", [words[i % 5] for i in range(size)], [(0, 0)] * size)


def arcs_of(ax):
    return ax.collections[0].get_segments()


def account(ax) -> str:
    return ax.get_title(loc="left")


def test_only_weights_that_reach_the_minimum_are_drawn():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.04, 0.9, 0.06]])
    ax = plot_arcs(weights, tokens(3))
    assert len(arcs_of(ax)) == 5
    assert account(ax).startswith("all weights of at least 5 %: 5")


def test_arcs_above_look_back_and_arcs_below_look_ahead():
    weights = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    ahead = arcs_of(plot_arcs(weights, tokens(2), queries=[0]))[0]
    assert (ahead[:, 1] < 0).all()
    back = arcs_of(plot_arcs(weights.flip(0, 1), tokens(2), queries=[1]))[0]
    assert (back[:, 1] >= -1e-4).all()


def test_an_arc_reaches_from_its_query_to_its_key():
    ax = plot_arcs(torch.eye(3).roll(1, 1), tokens(3), queries=[2])
    (arc,) = arcs_of(ax)
    centres = [text.get_position()[0] for text in ax.texts]
    assert sorted((arc[0, 0], arc[-1, 0])) == pytest.approx([centres[0], centres[2]])


def test_a_token_that_looks_at_itself_has_a_ring_on_it():
    ax = plot_arcs(torch.eye(2), tokens(2), queries=[1])
    (ring,) = arcs_of(ax)
    assert ring[0] == pytest.approx(ring[-1], abs=1e-3)
    assert ring[:, 0].mean() == pytest.approx(ax.texts[1].get_position()[0], abs=0.5)


def test_stronger_arcs_are_wider_and_drawn_last():
    ax = plot_arcs(torch.tensor([[0.3, 0.7], [0.1, 0.9]]), tokens(2))
    widths = ax.collections[0].get_linewidths()
    assert list(widths) == sorted(widths)
    assert widths[-1] == pytest.approx(4.0)


def test_what_is_left_out_is_counted():
    ax = plot_arcs(torch.full((20, 20), 0.05), tokens(20))
    assert len(arcs_of(ax)) == 100
    assert account(ax).startswith("the 100 largest weights; 300 more reach 5 %")


def test_a_lazy_map_is_asked_for_its_largest_only(causal, lazy):
    weights = causal(30)
    seen = arcs_of(plot_arcs(lazy(weights), tokens(30), queries=[5, 20]))
    assert len(seen) == int((weights[[5, 20]] >= 0.05).sum())


def test_rows_of_zeros_have_no_arcs(drawn):
    ax = plot_arcs(torch.zeros(3, 3), tokens(3))
    assert account(ax) == "no weight reaches 5 %"
    assert drawn(ax)


def test_one_token_alone_is_drawn(drawn):
    assert drawn(plot_arcs(torch.ones(1, 1), tokens(1)))


@pytest.mark.parametrize("size", [5, 12, 60, 160])
def test_tokens_do_not_touch_and_nothing_is_cut_off(size, causal, drawn):
    ax = plot_arcs(causal(size), tokens(size))
    texts = drawn(ax)
    figure = ax.get_figure().bbox
    assert all(figure.x0 <= b.x0 and b.x1 <= figure.x1 for _, b in texts)
    assert all(figure.y0 <= b.y0 and b.y1 <= figure.y1 for _, b in texts)
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))


def test_given_axes_are_filled_and_not_outgrown(causal, drawn):
    from matplotlib.figure import Figure

    ax = Figure((4, 3)).add_subplot()
    assert plot_arcs(causal(20), tokens(20), ax=ax) is ax
    drawn(ax)
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))


def test_other_scripts_are_drawn_as_they_are(sentence, causal):
    texts = plot_arcs(causal(7), sentence).texts
    assert tuple(text.get_text() for text in texts) == sentence.labels


@pytest.mark.bad_input
def test_leading_dimensions_are_not_dropped(sentence):
    with pytest.raises(ShapeError, match=r"weights must be \[query, key\]; got \[1, 7, 7\]"):
        plot_arcs(torch.rand(1, 7, 7), sentence)


def test_two_different_sides_are_refused():
    with pytest.raises(
        ShapeError,
        match=r"weights must have as many queries as keys, the same tokens; got \[3, 4\]",
    ):
        plot_arcs(torch.rand(3, 4), tokens(3))


def test_an_axis_of_another_size_is_refused(sentence):
    with pytest.raises(ShapeError, match="axis must have one label for each query"):
        plot_arcs(torch.eye(3), sentence)


def test_a_query_named_twice_is_drawn_once():
    ax = plot_arcs(torch.eye(3), tokens(3), queries=[2, 0, 2])
    assert len(arcs_of(ax)) == 2


def test_chosen_queries_have_a_colour_each_and_so_have_their_tokens():
    ax = plot_arcs(torch.eye(3), tokens(3), queries=[0, 2])
    colours = [text.get_color() for text in ax.texts]
    assert len(set(colours)) == 3
    assert len({tuple(rgba[:3]) for rgba in ax.collections[0].get_colors()}) == 2


def test_a_dark_style_keeps_words_readable():
    import matplotlib.style

    with matplotlib.style.context("dark_background"):
        ax = plot_arcs(torch.eye(3), tokens(3))
    assert {text.get_color() for text in ax.texts} == {"white"}


def test_texts_too_long_to_read_are_refused():
    with pytest.raises(
        ArgumentError, match="axis must have at most 160 tokens to be readable; got 161"
    ):
        plot_arcs(torch.eye(161), tokens(161))


@pytest.mark.parametrize("query", [-1, 3])
def test_queries_must_be_tokens(query):
    with pytest.raises(ArgumentError, match="queries must lie from 0 to 2"):
        plot_arcs(torch.eye(3), tokens(3), queries=[query])


def test_no_query_is_refused():
    with pytest.raises(ArgumentError, match="queries must name at least one"):
        plot_arcs(torch.eye(3), tokens(3), queries=[])


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_the_minimum_must_be_a_share(share):
    with pytest.raises(ArgumentError, match="minimum_share must be above 0"):
        plot_arcs(torch.eye(3), tokens(3), minimum_share=share)


def test_weights_that_are_no_shares_are_refused():
    with pytest.raises(ArgumentError, match="rows that add up to 1"):
        plot_arcs(torch.full((3, 3), 0.9), tokens(3))


def test_nan_is_refused():
    with pytest.raises(
        ArgumentError, match=r"weights must be finite; got nan\. Find out where it comes from"
    ):
        plot_arcs(torch.full((3, 3), torch.nan), tokens(3))
