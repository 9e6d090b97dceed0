"""What a notebook shows of what was seen."""

import html
from pathlib import Path

import torch
from torch import nn

import heedmap
from heedmap.layers import Layer
from heedmap.seen import Seen


def test_a_notebook_shows_the_table(tmp_path: Path) -> None:
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with heedmap.watch(model) as seen:
        model(torch.randn(1, 4, 8))
    seen.save(tmp_path / "seen")
    for found in (seen, heedmap.open(tmp_path / "seen")):
        assert found._repr_html_() == f"<pre>{found!r}</pre>"
        assert "self_attn" in found._repr_html_()


def test_names_are_no_markup() -> None:
    seen = Seen(lambda: [Layer("<b>", "self", 0, 1, None)])
    assert html.escape("<b>") in seen._repr_html_()
    assert "<b>" not in seen._repr_html_()
