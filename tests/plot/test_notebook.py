"""What a notebook shows of a map."""

import base64
import io
import re

import matplotlib.image
import pytest
import torch

from heedmap import AttentionMap
from heedmap.plot import notebook
from heedmap.plot.scale import colour_map


def pictures(shown: str | None) -> list[torch.Tensor]:
    assert shown is not None
    found = re.findall(r"base64,([^\"]+)", shown)
    return [
        torch.tensor(matplotlib.image.imread(io.BytesIO(base64.b64decode(data)))) for data in found
    ]


def test_a_picture_of_each_head() -> None:
    weights = AttentionMap.from_weights(torch.eye(3).expand(2, 3, 3))
    found = pictures(weights._repr_html_())
    assert [picture.shape for picture in found] == [(3, 3, 4)] * 2
    brightest = torch.tensor(colour_map()(1.0), dtype=torch.float32)
    for picture in found:
        torch.testing.assert_close(picture[1, 1], brightest, atol=1 / 255, rtol=0)
    assert "2 of 2 matrices" in str(weights._repr_html_())


def test_a_long_map_is_shown_by_some_of_its_queries() -> None:
    weights = AttentionMap.from_factors(*torch.randn(2, 60_000, 4))
    shown = weights._repr_html_()
    assert pictures(shown)[0].shape == (96, 96, 4)
    assert "of 96 queries, evenly spread" in str(shown)
    assert "dense would take 13 GiB" in str(shown)


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "BUDGET_SECONDS", 0)
    weights = AttentionMap.from_factors(*torch.randn(2, 5, 6, 4))
    assert len(pictures(weights._repr_html_())) == 1


def test_what_has_no_picture() -> None:
    weights = AttentionMap.from_factors(*torch.randn(2, 5, 4))
    assert weights[0]._repr_html_() is None
    assert weights[:0]._repr_html_() is None
    nan = AttentionMap.from_weights(torch.full((2, 2), torch.nan))
    assert len(pictures(nan._repr_html_())) == 1
