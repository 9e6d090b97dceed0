from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from heedmap.errors import ArgumentError, InputError, ShapeError
from heedmap.speech.projections import Projections


def trained(seed: int = 0) -> Projections:
    made = Projections(rank=3)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 10)
    return made


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    made = trained()
    made.save(tmp_path / "projections.pt")
    again = Projections.load(tmp_path / "projections.pt")
    units = normalize(torch.randn(5, 192), dim=1)
    assert torch.equal(made(units), again(units))
    assert not any(parameter.requires_grad for parameter in again.parameters())
    assert [path.name for path in tmp_path.iterdir()] == ["projections.pt"]


def test_rows_have_length_one() -> None:
    torch.testing.assert_close(trained()(torch.randn(5, 192)).norm(dim=1), torch.ones(5))


def test_what_is_learned_has_the_rank_and_no_more() -> None:
    made = trained()
    with torch.no_grad():
        assert torch.linalg.matrix_rank(made.down @ made.up) == 3


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="projections must be a file that can be read"):
        Projections.load(tmp_path / "none.pt")
    text = tmp_path / "text.pt"
    text.write_text("no zip")
    other = tmp_path / "other.pt"
    torch.save({"form": "another"}, other)
    lacking = tmp_path / "lacking.pt"
    torch.save({"form": "heedmap hear projections 1", "features": 192, "rank": 3}, lacking)
    wrong = tmp_path / "wrong.pt"
    held = {"form": "heedmap hear projections 1", "features": 192, "rank": 4}
    torch.save(held | {"state": trained().state_dict()}, wrong)
    endless = tmp_path / "endless.pt"
    made = trained()
    made.requires_grad_(False).down[0, 0] = torch.nan
    made.save(endless)
    for path in (text, other, lacking, wrong, endless):
        with pytest.raises(InputError, match="must be a file that heedmap train hear wrote"):
            Projections.load(path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a place that can be written to; got"):
        trained().save(tmp_path / "no folder" / "projections.pt")


@pytest.mark.parametrize("rank", [0, 193])
def test_ranks_that_make_no_sense(rank: int) -> None:
    with pytest.raises(ArgumentError, match="rank must be from 1 to the 192 features"):
        Projections(rank=rank)


def test_embeddings_of_another_model() -> None:
    with pytest.raises(ShapeError, match="embeddings must have the 192 features that these"):
        Projections()(torch.ones(2, 256))
