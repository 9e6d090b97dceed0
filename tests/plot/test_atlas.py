import itertools

import pytest
import torch

from heedmap.errors import ArgumentError, DTypeError, ShapeError
from heedmap.plot import plot_atlas


def test_all_heads_are_one_image(causal):
    ax = plot_atlas(causal(32).expand(3, 5, 32, 32))
    assert len(ax.images) == 1
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2", "3", "4"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0", "1", "2"]


def test_small_maps_are_enlarged_by_whole_factors():
    page = plot_atlas(torch.eye(8).expand(1, 1, 8, 8)).images[0].get_array()
    assert (page[:12, :12] == page[0, 0]).all()
    assert (page[0, 0] != page[12, 0]).any()


def test_layers_of_different_sizes_share_a_page(causal, drawn):
    layers = [causal(64).expand(4, 64, 64), causal(16).expand(2, 16, 16)]
    assert drawn(plot_atlas(layers, labels=[["a"] * 4, ["b"] * 2], chosen=(1, 1)))


def test_a_lazy_map_is_asked_for_thumbnails_only(causal, lazy):
    layer = lazy(causal(512).expand(2, 512, 512))
    plot_atlas([layer])
    assert layer.asked == [(86, 86)]


def test_labels_do_not_touch_and_nothing_is_cut_off(causal, drawn):
    labels = [["previous token"] * 12] * 12
    ax = plot_atlas(causal(100).expand(12, 12, 100, 100), labels=labels, chosen=(11, 11))
    texts = drawn(ax)
    boxes = [box for text, box in texts if text == "previous token"]
    assert len(boxes) == 144
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    figure = ax.get_figure().bbox
    assert all(figure.x0 <= b.x0 and b.x1 <= figure.x1 and figure.y0 <= b.y0 for _, b in texts)
    assert 1300 <= figure.width <= 1700


def test_the_chosen_head_is_framed(causal):
    frame = plot_atlas(causal(96).expand(2, 3, 96, 96), chosen=(1, 2)).patches[0]
    assert (frame.get_x(), frame.get_y()) == pytest.approx((2 * 104 - 2.5, 104 - 2.5))


def test_a_map_of_zeros_is_drawn(drawn):
    assert drawn(plot_atlas(torch.zeros(1, 1, 3, 3)))


@pytest.mark.bad_input
@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 4), (1, 2, 3, 4, 4)])
def test_matrices_per_layer_and_head_are_wanted(shape):
    with pytest.raises(ShapeError, match=r"maps must be \[layers, heads, query, key\]"):
        plot_atlas(torch.rand(shape))


@pytest.mark.bad_input
def test_a_batch_in_a_list_is_refused():
    with pytest.raises(ShapeError, match=r"each of maps must be \[heads, query, key\]"):
        plot_atlas([torch.rand(1, 2, 4, 4)])


def test_no_layers_are_refused():
    with pytest.raises(ShapeError, match="at least one layer"):
        plot_atlas([])


@pytest.mark.parametrize("labels", [[["a"]], [["a", "b"], ["c"]], []])
def test_labels_must_fit(labels):
    with pytest.raises(ShapeError, match="labels must have one text for each head"):
        plot_atlas(torch.rand(2, 2, 3, 3), labels=labels)


@pytest.mark.parametrize("chosen", [(2, 0), (0, 3), (-1, 0)])
def test_the_chosen_head_must_be_there(chosen):
    with pytest.raises(ArgumentError, match="chosen must be one of 2 layers"):
        plot_atlas(torch.rand(2, 3, 4, 4), chosen=chosen)


@pytest.mark.bad_input
def test_bad_numbers_are_refused():
    with pytest.raises(ArgumentError, match="maps must be finite"):
        plot_atlas(torch.full((1, 1, 2, 2), torch.nan))
    with pytest.raises(DTypeError, match=r"maps must be floating point; got torch\.int32"):
        plot_atlas(torch.ones(1, 1, 2, 2, dtype=torch.int32))
