import os

import pytest
import torch

from heedmap.errors import InputError
from heedmap.plot import plot_heatmap, save_figure

HEADS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("ending", HEADS)
def test_the_ending_says_the_format(ending, tmp_path):
    place = save_figure(plot_heatmap(torch.eye(3)), tmp_path / f"map.{ending}")
    assert place.read_bytes().startswith(HEADS[ending])


def test_a_figure_is_taken_as_well_as_axes(tmp_path):
    figure = plot_heatmap(torch.eye(3)).get_figure()
    assert save_figure(figure, str(tmp_path / "map.PNG")).stat().st_size > 1000


def test_the_file_can_be_read_as_any_other(tmp_path):
    place = save_figure(plot_heatmap(torch.eye(3)), tmp_path / "map.png")
    (tmp_path / "other").touch()
    assert place.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_the_same_picture_is_the_same_svg_date_aside(tmp_path):
    place = save_figure(plot_heatmap(torch.eye(3)), tmp_path / "map.svg")
    assert b"<dc:date>" not in place.read_bytes()


@pytest.mark.parametrize("name", ["map", "map.jpeg", ".png"])
def test_other_endings_are_refused(name, tmp_path):
    with pytest.raises(InputError, match="path must end in"):
        save_figure(plot_heatmap(torch.eye(3)), tmp_path / name)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="path must be a file that can be written"):
        save_figure(plot_heatmap(torch.eye(3)), tmp_path / "no" / "map.png")


def test_what_is_no_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "map.png"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"can be written; got “.*map\.png” \(it is no file\)"):
        save_figure(plot_heatmap(torch.eye(3)), pipe)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    place = tmp_path / "map.png"
    place.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InputError, match="No space left"):
        save_figure(plot_heatmap(torch.eye(3)), place)
    assert place.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["map.png"]


def test_a_picture_that_was_removed(tmp_path):
    picture = plot_heatmap(torch.eye(3))
    picture.remove()
    with pytest.raises(InputError, match="picture must belong to a figure; got one that was"):
        save_figure(picture, tmp_path / "map.png")


def test_no_figure_stays_in_pyplots_list():
    import matplotlib.pyplot as plt

    plot_heatmap(torch.eye(3))
    assert plt.get_fignums() == []
