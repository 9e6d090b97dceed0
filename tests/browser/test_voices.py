"""The map of who looks at whom, as ``heedmap hear --save`` writes it, with the sound beside it."""

import wave
from pathlib import Path

import pytest
import torch

from heedmap import AttentionMap
from heedmap.axes import Axis
from heedmap.explore.inputs import scene_of_recording
from heedmap.layers import Layer
from heedmap.seen import Seen
from tests.browser.conftest import OpenPage

MOMENTS = ((1.0, 2.5), (2.0, 3.0), (2.0, 4.5), (9.0, 10.5))
SPEAKERS = ("speaker 1", "speaker 2", "speaker 2", "speaker 1")


def saved(folder: Path) -> Path:
    """Return the folder of a recording of four voices, beside a sound."""
    axis = Axis("audio", SPEAKERS, MOMENTS)
    weights = torch.eye(4) * 0.6 + 0.1
    layer = Layer("voices", "self", 0, 1, AttentionMap.from_weights(weights[None, None]))
    Seen(lambda: (layer,)).save(folder / "map", axis=axis)
    with wave.open(str(folder / "talk.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(12 * 16000))
    return folder / "map"


def test_both_moments_are_named_and_heard(open_page: OpenPage, tmp_path: Path) -> None:
    scene = scene_of_recording(saved(tmp_path), media=tmp_path / "talk.wav")
    opened = open_page(scene)
    opened.until("document.querySelector('audio').readyState > 0")
    opened.set(query=3, key=1)
    shown = opened.page.inner_text("#heedmap")
    assert "speaker 1, 9.0–10.5 s" in shown
    assert "speaker 2, 2.0–3.0 s" in shown
    assert "speaker 2, 2.0\n" in opened.page.inner_text(".hm-ranked-query")
    opened.page.evaluate(
        """() => {
            const player = document.querySelector("audio");
            window.heard = [];
            for (const kind of ["play", "pause"])
                player.addEventListener(kind, () => window.heard.push([kind, player.currentTime]));
        }"""
    )
    for name in ("query", "key"):
        opened.page.get_by_role("button", name=f"Play the {name}’s moment").click()
        opened.until("document.querySelector('audio').paused && window.heard.length % 2 === 0")
    expected = [("play", 9.0), ("pause", 10.5), ("play", 2.0), ("pause", 3.0)]
    heard = opened.page.evaluate("window.heard")
    assert [kind for kind, _ in heard] == [kind for kind, _ in expected]
    assert [time for _, time in heard] == pytest.approx([time for _, time in expected], abs=0.3)
    assert (opened.view("state()")["query"], opened.view("state()")["key"]) == (3, 1)
