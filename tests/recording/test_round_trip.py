"""What is opened is what was saved, for every kind of mask and layer."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Documents, Mask, Padding, Visible, Window
from heedmap.masks import Extent, Spans
from heedmap.watch.flex import VisibleWhere
from heedmap.watch.spans import Chosen

from .makers import BATCH, HEADS, KEYS, QUERIES, assert_equal, assert_same, draw, make_map, seen_of

VALID = torch.tensor([[1] * 9, [0, 0, 1, 1, 1, 1, 1, 1, 0]])
TABLE = torch.rand(BATCH, HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(3)) > 0.6
SPANS = Spans(
    torch.tensor([[[0, 0, 1, 2, 2, 0, 5]]]),
    torch.tensor([[[0, 3, 4, 8, 2, -1, 8]]]),
    VALID.bool(),
)
IDS = Documents(
    torch.tensor([[0, 0, 1, 1, 1, 2, 2], [5] * 7]),
    torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2], [5] * 9], dtype=torch.int32),
)
TALL = Extent(BATCH, HEADS, 20, KEYS)
CHOSEN = Chosen(
    Visible(TABLE[:, :1].repeat(1, 9, 3, 1)),
    torch.tensor([8, 0, 3, 3]),
    torch.tensor([20, 3, 1, 5, 9, 0, 2]),
)

MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal": Causal(alignment="end"),
    "window": Window(before=2, after=None, alignment=1),
    "padding": Padding(VALID),
    "documents": IDS,
    "spans": SPANS,
    "visible": Visible(TABLE),
    "visible for all": Visible(TABLE[0, 0]),
    "both": Causal(alignment=2) & Padding(VALID),
    "either": Visible(TABLE) | (Window(before=0, after=0, alignment=0) & IDS),
    "chosen": CHOSEN,
    "chosen and padding": CHOSEN & Padding(VALID),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "scale and cap": {"scale": 0.7, "soft_cap": 2.5},
    "sinks": {"sinks": torch.linspace(-1, 1, HEADS), "mask": Causal(alignment="start")},
    "bias": {"bias": draw(BATCH, 1, QUERIES, KEYS).masked_fill(TABLE[:, :1], -torch.inf)},
    "bias for all": {"bias": draw(1, KEYS).expand(QUERIES, KEYS)},
}


@pytest.mark.parametrize("is_read_before", [False, True], ids=["fresh", "read before"])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, is_read_before: bool, tmp_path: Path) -> None:
    seen = seen_of(make_map(mask=MASKS[name]))
    if is_read_before:
        seen[0].to_dense()
    seen.save(tmp_path / "seen")
    assert_same(heedmap.open(tmp_path / "seen"), seen)


@pytest.mark.parametrize("name", OPTIONS)
def test_scores(name: str, tmp_path: Path) -> None:
    seen = seen_of(make_map(**OPTIONS[name]))
    seen.save(tmp_path / "seen")
    assert_same(heedmap.open(tmp_path / "seen"), seen)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_number_types(dtype: torch.dtype, tmp_path: Path) -> None:
    seen = seen_of(make_map(dtype, mask=Padding(VALID)), make_map(dtype, scale=30.0))
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert opened[0].dtype == dtype
    assert_same(opened, seen)


def test_what_is_hidden_may_be_nan(tmp_path: Path) -> None:
    key = draw(BATCH, 2, KEYS, 6)
    key[1, :, 0] = torch.nan
    weights = AttentionMap.from_factors(draw(BATCH, HEADS, QUERIES, 6), key, mask=SPANS)
    seen = seen_of(weights)
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert bool(opened[0].to_dense().isfinite().all())
    assert_same(opened, seen)


def test_nothing_to_look_at(tmp_path: Path) -> None:
    seen = seen_of(
        AttentionMap.from_factors(torch.zeros(1, 1, 0, 4), torch.zeros(1, 1, 3, 4)),
        AttentionMap.from_factors(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 0, 4)),
        AttentionMap.from_factors(torch.zeros(3, 4), torch.zeros(5, 4)),
    )
    seen.save(tmp_path / "seen")
    assert_same(heedmap.open(tmp_path / "seen"), seen)


def test_maps_on_weights_selections_summaries_and_nothing(tmp_path: Path) -> None:
    weights = make_map(mask=Causal(alignment="end"))
    seen = seen_of(
        AttentionMap.from_weights(TABLE.float().softmax(-1)),
        AttentionMap.from_weights(TABLE[0].double()),
        weights[0, 1:, 2:, ::2],
        weights[:, [3, 0], :, 1:],
        weights[:, :, [6, 2, 2]],
        weights.reshape(2, 2, 2, QUERIES, KEYS),
        None,
        weights.summarize(top=3, pool=(2, 4)),
        weights[0, 0].summarize(),
        kept="as it came",
        output_error=float("nan"),
    )
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert repr(opened) == repr(seen)
    for mine, theirs in zip(list(opened)[:6], list(seen)[:6], strict=True):
        assert_equal(mine.to_dense(), theirs.to_dense())
    assert opened[6] is None
    for place in (7, 8):
        assert (opened[place].top, opened[place].pool) == (seen[place].top, seen[place].pool)
        for name in ("received", "entropy", "top_weights", "top_keys", "pooled"):
            assert_equal(getattr(opened[place], name), getattr(seen[place], name))
    assert str(opened.layer(0).output_error) == "nan"


def test_the_log_normalizer_is_not_computed_again(tmp_path: Path) -> None:
    _, weights = heedmap.attention(draw(1, 2, 5, 8), draw(1, 2, 5, 8), draw(1, 2, 5, 8))
    seen_of(weights).save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")[0]
    assert_equal(opened._rule.normalizer.known, weights.log_normalizer)


def test_what_is_known_of_a_layer(tmp_path: Path) -> None:
    known = {"kind": "causal", "number": 2, "calls": 11, "first_query": 4, "door": "sdpa"}
    weights = make_map()
    norms = draw(BATCH, 2, KEYS).abs()
    seen = seen_of(weights, **known, value_norms=norms, output_error=1.25e-7)
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert_same(opened, seen)
    assert opened.check().ok
    assert [x.name for x in opened.self_attention.layers] == ["layer.0"]
    assert not len(opened.cross_attention)
    changed = replace(opened.layer(0), name="other")
    assert (changed.name, changed.calls) == ("other", 11)
    assert_equal(changed.weights.to_dense(), weights.to_dense())


AXES = {
    "tokens": heedmap.Axis.of_tokens("他说\udcff", ["他", "说\udcff"], [(0, 1), (1, 3)]),
    "halves of a character": heedmap.Axis.of_tokens("\ud83d\ude00", ["\ud83d", "\ude00"], []),
    "sound": heedmap.Axis.of_seconds([(0.0, 0.1), (0.1, 1 / 3)]),
    "film": heedmap.Axis.of_frames([(0.0, 0.04), (0.04, 0.1)], [(0, 1), (1, 3)]),
    "positions": heedmap.Axis.of_positions(3),
}


@pytest.mark.parametrize("name", [name for name in AXES if name != "halves of a character"])
def test_axes(name: str, tmp_path: Path) -> None:
    seen_of(make_map()).save(tmp_path / "seen", axis=AXES[name])
    opened = heedmap.open(tmp_path / "seen")
    assert opened.axis == AXES[name]
    opened.save(tmp_path / "again")
    assert heedmap.open(tmp_path / "again").axis == AXES[name]


def test_halves_of_a_character_that_meet_become_one(tmp_path: Path) -> None:
    seen_of(make_map()).save(tmp_path / "seen", axis=AXES["halves of a character"])
    assert heedmap.open(tmp_path / "seen").axis.text == "😀"


def test_without_an_axis_there_is_none(tmp_path: Path) -> None:
    seen_of(make_map()).save(tmp_path / "seen")
    assert heedmap.open(tmp_path / "seen").axis is None


def test_what_is_expanded_is_written_once(tmp_path: Path) -> None:
    bias, table = torch.zeros(1, 400), torch.ones(1, 400, dtype=torch.bool)
    weights = AttentionMap.from_factors(
        torch.zeros(8, 4, 400, 1),
        torch.zeros(8, 4, 400, 1),
        bias=bias.expand(8, 4, 400, 400),
        mask=Visible(table.expand(8, 4, 400, 400)),
    )
    seen_of(weights).save(tmp_path / "seen")
    assert (tmp_path / "seen" / "0000.safetensors").stat().st_size < 200_000
    assert float(heedmap.open(tmp_path / "seen")[0][0, 0, 0, 0]) == pytest.approx(1 / 400)


def test_the_manifest_says_what_people_ask(tmp_path: Path) -> None:
    seen_of(make_map(mask=Causal(alignment="end"), scale=0.5)).save(tmp_path / "seen")
    whole = json.loads((tmp_path / "seen" / "manifest.json").read_text())
    content = whole["recording"]
    assert whole["schema"] == 1
    assert "after any rotation" in content["positions"]
    assert content["torch"] == str(torch.__version__)
    assert content["model"] == "Tiny"
    (layer,) = content["layers"]
    assert layer["weights"]["of"]["mask"] == {"kind": "causal", "alignment": 2}
    assert layer["weights"]["of"]["scale"] == 0.5
    assert layer["file"]["tensors"]["query"] == {"dtype": "float32", "shape": [2, 4, 7, 6]}
    assert str(tmp_path) not in json.dumps(whole)


def in_blocks(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    del batch, head
    return (query // 4 == key // 4) & (key != 5)


@pytest.mark.parametrize("inner", ["alone", "chosen", "in both"])
def test_functions_that_are_stretches(inner: str, tmp_path: Path) -> None:
    where: Mask = VisibleWhere(in_blocks)
    if inner == "chosen":
        where = Chosen(where, torch.tensor([0, 1, 2, 3]), torch.tensor([6, 5, 4, 3, 2, 1, 0]))
    if inner == "in both":
        where = Visible(TABLE) & where
    seen = seen_of(make_map(mask=where))
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    # Stretches may be computed by another kernel than functions of places are.
    torch.testing.assert_close(opened[0].to_dense(), seen[0].to_dense(), rtol=0, atol=1e-6)
    assert torch.equal(opened[0].to_dense() > 0, seen[0].to_dense() > 0)


def test_a_recording_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = seen_of(make_map(mask=CHOSEN))
    monkeypatch.chdir(tmp_path)
    seen.save("seen")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "seen").rename(tmp_path / "elsewhere" / "other")
    monkeypatch.chdir(tmp_path / "elsewhere")
    opened = heedmap.open("other")
    monkeypatch.chdir("/")
    assert_same(opened, seen)


OPENING = """
import sys, torch, heedmap

def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

heedmap.open(sys.argv[1])
before = resident_bytes()
seen = heedmap.open(sys.argv[2])
print(seen)
opened = resident_bytes() - before
weights = seen[3]
hashed = resident_bytes() - before
weights.to_dense(max_bytes=1 << 40)
print(opened, hashed, resident_bytes() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_opening_reads_no_tensors(tmp_path: Path) -> None:
    large = torch.zeros(1, 4, 1 << 16, 64)
    weights = AttentionMap.from_factors(large[:, :, :8], large)
    seen_of(make_map()).save(tmp_path / "small")
    seen_of(*[weights] * 8).save(tmp_path / "large")
    program = [sys.executable, "-c", OPENING, str(tmp_path / "small"), str(tmp_path / "large")]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    opened, hashed, used = map(int, done.stdout.splitlines()[-1].split())
    assert opened < 8 << 20
    assert hashed < 16 << 20
    assert large.nbytes <= used < 3 * large.nbytes
