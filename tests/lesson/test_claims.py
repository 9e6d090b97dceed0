"""What `heedmap lesson measure` measures, with little of everything."""

import json
import math
import statistics
from pathlib import Path

import pytest
import torch

from heedmap.errors import InputError
from heedmap.lesson.claims import networks, pace, reach, recall, scale
from heedmap.lesson.claims.curves import Curves
from heedmap.lesson.claims.networks import MAKERS, Answering, size_of, width_for
from heedmap.lesson.measuring import measure, measure_all
from heedmap.lesson.page_files import PAGE


def test_the_networks_have_nearly_the_same_size() -> None:
    sizes = [
        size_of(Answering(name, 9, width_for(name, recall.FEATURES, recall.SYMBOLS), 8))
        for name in MAKERS
    ]
    assert max(sizes) / min(sizes) < 1.02


@pytest.mark.parametrize("name", list(MAKERS))
def test_no_network_answers_without_learning_and_each_learns_what_is_near(name: str) -> None:
    assert recall.accuracy(name, 2, 0, steps=0) < 0.3
    assert recall.accuracy(name, 1, 0, steps=150) > 0.6


def test_the_same_seed_gives_the_same_result() -> None:
    assert recall.accuracy("gru", 2, 3, steps=5) == recall.accuracy("gru", 2, 3, steps=5)
    assert scale.train(True, 1, width=8, steps=10) == scale.train(True, 1, width=8, steps=10)
    assert reach.gradients("lstm", 1) == reach.gradients("lstm", 1)


def test_the_last_position_depends_on_no_position_beyond_the_field_of_the_convolutions() -> None:
    field = (networks.KERNEL - 1) * (2**networks.CNN_LAYERS - 1)
    for distance, gradient in zip(reach.DISTANCES, reach.gradients("cnn", 0), strict=True):
        assert (gradient > 0) == (distance <= field)


def test_the_number_of_layers_is_the_least_through_which_a_gradient_comes() -> None:
    for distance in (1, 2, 3, 6, 7, 14, 15):
        x = torch.randn(1, distance + 1, 3, requires_grad=True)
        layers = 0
        found = 0.0
        while not found:
            layers += 1
            network = networks.ConvolutionReader(3, 64, layers)
            (gradient,) = torch.autograd.grad(network(x)[0, -1].sum(), x)
            found = float(gradient[0, 0].abs().sum())
        assert layers == reach.steps_between("cnn", distance)


def test_gradients_of_attention_reach_as_far_as_one_likes_and_those_of_recurrence_do_not() -> None:
    attention = [reach.gradients("attention", seed) for seed in range(3)]
    lstm = [reach.gradients("lstm", seed) for seed in range(3)]
    for near, *_, far in attention:
        assert far > near / 5
    for near, *_, far in lstm:
        assert far < near * 1e-9


def test_without_the_root_weights_are_sharper_from_the_start() -> None:
    assert scale.sharpness(256, True, 0) < 0.2 < 0.7 < scale.sharpness(256, False, 0)
    learned = {kind: scale.train(scaled, 0, steps=0) for kind, scaled in scale.KINDS.items()}
    assert learned["unscaled"].sharpness[0] > 2 * learned["scaled"].sharpness[0]


def test_passes_are_timed_often_enough() -> None:
    assert len(pace.milliseconds("cnn", 64, learning=True)) == pace.REPEATS // 2 + 1
    assert min(pace.milliseconds("attention", 64, learning=False)) > 0


def a_little(_: object) -> dict[str, Curves]:
    found = measure_small()
    return dict.fromkeys(
        ("recall", "steps", "reach", "learning", "reading", "sharpness_by_width"), found
    ) | dict.fromkeys(
        ("loss", "gradient", "sharpness"), Curves((0, 10), {"scaled": [[1.0, 2.0], [0.5, 0.4]]})
    )


def measure_small() -> Curves:
    lines = {name: [[1.0, 0.5], [0.25, 0.5]] for name in MAKERS}
    sizes = {name: {"parameters": 10, "width": 3} for name in MAKERS}
    return Curves((2, 4), lines, {"sizes": sizes, "chance": 0.125, "batches": 3})


def test_pictures_table_and_numbers_are_written(tmp_path: Path) -> None:
    told: list[str] = []
    table = measure(tmp_path / "out", progress=told.append, results=a_little)
    files = {path.name for path in (tmp_path / "out").iterdir()}
    pictures = {"recall.png", "reach.png", "pace.png", "scale.png"}
    assert files == {*pictures, "table.md", "measured.json"}
    assert (tmp_path / "out/table.md").read_text() == table
    assert "| attention | 0.75 ± 0.25 | 0.375 ± 0.12 |" in table
    kept = json.loads((tmp_path / "out/measured.json").read_text())
    line = kept["results"]["recall"]["series"]["lstm"]
    assert line == {
        "mean": [0.75, 0.375],
        "spread": [0.25, 0.125],
        "seeds": [[1.0, 0.5], [0.25, 0.5]],
    }
    assert told[-1] == f"The pictures, the table and the numbers are in {tmp_path / 'out'}."


@pytest.mark.bad_input
def test_earlier_results_are_kept_unless_told_otherwise(tmp_path: Path) -> None:
    measure(tmp_path, results=a_little)
    begun = []
    with pytest.raises(InputError, match="output must be a folder without earlier results"):
        measure(tmp_path, results=lambda _: begun.append(1) or {})
    assert begun == []
    measure(tmp_path, force=True, results=a_little)


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted(_: object) -> dict[str, Curves]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path / "out", results=interrupted)
    assert list(tmp_path.iterdir()) == []


def test_all_of_it_has_the_form_that_the_page_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedmap.lesson.measuring.SEEDS", 1)
    monkeypatch.setattr(recall, "accuracy", lambda *_, **__: 0.5)
    monkeypatch.setattr(pace, "milliseconds", lambda *_, **__: [1.0])
    monkeypatch.setattr(
        scale, "train", lambda *_, **__: scale.Learned([1.0] * 21, [1.0] * 21, [1.0] * 21)
    )
    found = measure_all(lambda _: None)
    kept = json.loads((PAGE / "measured.json").read_text())["results"]
    assert found.keys() == kept.keys()
    for name, curves in found.items():
        assert curves.as_json()["x"] == kept[name]["x"]
        assert curves.lines.keys() == kept[name]["series"].keys()


def test_what_the_page_says_is_what_was_measured() -> None:
    kept = json.loads((PAGE / "measured.json").read_text())["results"]

    def mean(result: str, line: str, x: float) -> float:
        return kept[result]["series"][line]["mean"][kept[result]["x"].index(x)]

    # “An answer is as easy to learn from anywhere”; “until nothing is learned”; “30 steps”.
    assert all(value > 0.95 for value in kept["recall"]["series"]["attention"]["mean"])
    assert mean("recall", "lstm", 64) < 0.25
    assert mean("recall", "gru", 64) < 0.25
    assert mean("recall", "cnn", 16) > 0.95
    assert mean("recall", "cnn", 32) < 0.25
    assert mean("reach", "cnn", 32) == 0
    # “Four times as long takes attention about sixteen times, the others about four”: as T², as T.
    for result in ("learning", "reading"):
        longest = kept[result]["x"][-1]
        for line in MAKERS:
            growth = mean(result, line, longest) / mean(result, line, longest // 16)
            assert (math.log(growth, 16) > 1.7) == (line == "attention"), (result, line, growth)
            assert math.log(growth, 16) < 1.5 or line == "attention", (result, line, growth)
        # “Further on the LSTM and the CNN are faster.”
        assert mean(result, "attention", longest) > mean(result, "lstm", longest)
        assert mean(result, "attention", longest) > mean(result, "cnn", longest)
    # “Divided, d does not matter”; “large gradients”; “falls more slowly”.
    divided = kept["sharpness_by_width"]["series"]["scaled"]["mean"]
    assert max(divided) < 1.2 * min(divided)
    assert mean("gradient", "unscaled", 0) > 2 * mean("gradient", "scaled", 0)
    half = kept["loss"]["x"][len(kept["loss"]["x"]) // 2]
    assert mean("loss", "unscaled", half) > 2 * mean("loss", "scaled", half)
    spreads = {
        line: statistics.fmean(kept["loss"]["series"][line]["spread"]) for line in scale.KINDS
    }
    assert spreads["unscaled"] > spreads["scaled"]
