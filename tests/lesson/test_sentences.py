"""The sentences that the page carries, and those that people type."""

import json

import pytest
import torch

from heedmap.errors import InputError
from heedmap.lesson.page_files import PAGE
from heedmap.lesson.sentences import FIRST, first_sentences, look_at
from heedmap.look.running import run
from heedmap.media import Text


@pytest.mark.bad_input
@pytest.mark.parametrize("text", ["", " \n ", "字" * 121])
def test_no_sentence_and_too_much_of_one_are_refused(text: str) -> None:
    size = len(" ".join(text.split()))
    words = f"sentence must have 1 to 120 characters; got {size}. Take one sentence at a time."
    with pytest.raises(InputError, match=words):
        look_at(text)


def test_the_page_carries_whole_rows() -> None:
    kept = json.loads((PAGE / "sentences.json").read_text())
    assert {language: sentence["text"] for language, sentence in kept.items()} == FIRST
    for sentence in kept.values():
        assert sum(sentence["kinds"].values()) == 144
        assert sentence["heads"][0]["kind"] == "repeated word"
        for head in sentence["heads"]:
            weights = torch.tensor(head["weights"])
            assert weights.shape == (len(sentence["tokens"]),) * 2
            torch.testing.assert_close(weights.sum(-1), torch.ones(len(weights)), rtol=0, atol=2e-5)


@pytest.mark.slow
def test_they_are_what_the_model_gives() -> None:
    kept = json.loads((PAGE / "sentences.json").read_text())
    for language, now in first_sentences().items():
        then = kept[language]
        assert {name: now[name] for name in ("text", "model", "tokens", "kinds")} == {
            name: then[name] for name in ("text", "model", "tokens", "kinds")
        }
        for head, before in zip(now["heads"], then["heads"], strict=True):
            assert (head["layer"], head["head"]) == (before["layer"], before["head"])
            torch.testing.assert_close(
                torch.tensor(head["weights"]), torch.tensor(before["weights"]), rtol=0, atol=1e-4
            )


@pytest.mark.slow
def test_the_weight_that_the_chinese_page_tells_of() -> None:
    made = run(Text.of(FIRST["zh"]), model=None, start_seconds=0.0, progress=lambda _: None)
    first, second = made.axis.labels.index("他说"), made.axis.labels.index("他")
    assert second == first + 1
    weight = float(made.layers[0].weights[2, second, first])
    assert weight == pytest.approx(0.896, abs=5e-4)
    assert "0.896" in (PAGE / "lesson_texts_zh.js").read_text(encoding="utf-8")
