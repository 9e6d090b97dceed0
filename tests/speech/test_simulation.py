"""Conversations that are made: the truth is where the sound is; what was asked for is reached."""

from itertools import pairwise
from pathlib import Path

import pytest
import soundfile
import torch
from torch import Tensor

from heedmap.errors import ArgumentError
from heedmap.speech.clips import PAUSE_SECONDS, speech_spans, trimmed
from heedmap.speech.simulation import OVERLAP_TOLERANCE, Conversation, simulate
from heedmap.speech.turns import Turn, speakers_of, spoken_spans

RATE = 16_000


def hum(pitch_hz: float, seconds: float) -> Tensor:
    return 0.3 * torch.sin(torch.arange(round(seconds * RATE)) * (6.2832 * pitch_hz / RATE))


def with_silence(sound: Tensor, seconds: float = 0.4) -> Tensor:
    silence = torch.zeros(round(seconds * RATE))
    return torch.cat([silence, sound, silence])


@pytest.fixture(scope="module")
def voices() -> dict[str, list[Tensor]]:
    """Four hums of different pitch, clips of 0.6 to 4 s with silence at both ends."""
    lengths = (0.6, 0.9, 1.4, 2.1, 3.0, 4.0)
    return {
        name: [with_silence(hum(pitch, seconds)) for seconds in lengths]
        for name, pitch in (("Al", 110), ("Bo", 240), ("Cy", 700), ("Di", 1500))
    }


def some(voices: dict[str, list[Tensor]], number: int) -> dict[str, list[Tensor]]:
    return dict(list(voices.items())[:number])


@pytest.mark.parametrize("speakers", [2, 3, 4])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.25])
def test_speakers_and_overlap_are_as_asked(
    voices: dict[str, list[Tensor]], speakers: int, share: float
):
    talk = simulate(some(voices, speakers), seconds=90, overlap_share=share, seed=7)
    assert set(speakers_of(talk.turns)) == set(some(voices, speakers))
    assert abs(talk.overlap_share - share) < OVERLAP_TOLERANCE
    assert talk.duration_seconds == 90
    assert talk.samples.abs().max() <= 1
    if not share:
        assert spoken_spans(talk.turns, 2) == []


def test_same_seed_same_samples(voices: dict[str, list[Tensor]]):
    first, again, other = (
        simulate(voices, seconds=40, overlap_share=0.1, seed=seed) for seed in (3, 3, 4)
    )
    assert torch.equal(first.samples, again.samples)
    assert first.turns == again.turns
    assert not torch.equal(first.samples, other.samples)


def frames_of(talk: Conversation, turns: list[Turn]) -> Tensor:
    marked = torch.zeros(round(talk.duration_seconds * 100), dtype=torch.bool)
    for turn in turns:
        marked[round(turn.start_seconds * 100) : round(turn.end_seconds * 100)] = True
    return marked


def test_truth_is_where_the_sound_is(voices: dict[str, list[Tensor]]):
    talk = simulate(voices, seconds=60, overlap_share=0.1, seed=5)
    loud = talk.samples.view(-1, RATE // 100).square().mean(1) > 1e-6
    spoken = frames_of(talk, list(talk.turns))
    differing = (loud != spoken).nonzero().flatten() / 100
    # Only within pauses too short to end a turn, and by a frame at its ends.
    assert len(differing) < 0.02 * len(loud)
    assert not (loud & ~spoken).float().mean() > 0.005


def test_each_voice_is_heard_in_its_own_turns(voices: dict[str, list[Tensor]]):
    """Two hums far apart: what a narrow band hears says who speaks."""
    two = {"low": voices["Al"], "high": voices["Di"]}
    talk = simulate(two, seconds=60, overlap_share=0.2, seed=2)
    window = torch.hann_window(320)
    spectrum = torch.stft(talk.samples, 320, 160, window=window, return_complex=True).abs()
    for name, band in (("low", slice(1, 5)), ("high", slice(27, 34))):
        loud = spectrum[band].amax(0)[: 60 * 100] > 0.5
        spoken = frames_of(talk, [turn for turn in talk.turns if turn.speaker == name])
        assert (loud == spoken).float().mean() > 0.96


def test_turns_of_one_speaker_have_a_pause_between_them(voices: dict[str, list[Tensor]]):
    talk = simulate(voices, seconds=90, overlap_share=0.25, seed=11)
    for name in voices:
        own = [turn for turn in talk.turns if turn.speaker == name]
        for before, after in pairwise(own):
            assert after.start_seconds - before.end_seconds > PAUSE_SECONDS


def test_speech_of_a_clip_is_told_by_its_energy():
    pause, breath = torch.zeros(RATE), torch.zeros(RATE // 5)
    clip = torch.cat([pause, hum(200, 0.5), breath, hum(200, 0.5), pause, hum(200, 0.7)])
    assert speech_spans(clip) == ((1.0, 2.2), (3.2, 3.9))
    assert speech_spans(torch.zeros(RATE)) == ()
    assert speech_spans(torch.zeros(10)) == ()


def test_a_clip_is_cut_to_its_speech_and_levelled():
    for level in (0.01, 0.8):
        clip = trimmed(with_silence(level * hum(200, 1.0), seconds=2.0))
        assert clip is not None
        assert clip.spans == ((0.1, 1.1),)
        assert (clip.lead_seconds, clip.speech_seconds) == (0.1, 1.0)
        assert len(clip.samples) == 1.9 * RATE
        power = clip.samples[RATE // 10 : RATE * 11 // 10].square().mean()
        torch.testing.assert_close(power.sqrt().item(), 10 ** (-26 / 20))
    assert trimmed(torch.zeros(RATE)) is None


def test_an_echo_is_heard_but_is_no_speech():
    fading = hum(200, 1.5) * 10 ** (torch.linspace(0, -60, round(1.5 * RATE)) / 20)
    clip = trimmed(torch.cat([hum(200, 1.0), fading]))
    assert clip is not None
    ((start, end),) = clip.spans
    assert start == 0
    # It has fallen by 25 dB after 0.625 s.
    assert abs(end - 1.62) < 0.03
    assert clip.samples[round((end + 0.1) * RATE) :].abs().max() > 0
    assert clip.samples[-1] == 0


@pytest.mark.parametrize("ratio_db", [0.0, 10.0])
def test_music_has_the_level_asked_for(voices: dict[str, list[Tensor]], ratio_db: float):
    def talk(music: list[Tensor]) -> Conversation:
        return simulate(
            voices, seconds=60, overlap_share=0, seed=1, music=music, music_snr_db=ratio_db
        )

    without, played = talk([]), talk([hum(3000, 40)])
    added = played.samples - without.samples
    assert without.music_spans == ()
    assert played.turns == without.turns
    assert 0.2 < sum(end - start for start, end in played.music_spans) / 60 < 0.8
    start, end = played.music_spans[0]
    # Faded in and out at the ends.
    inner = added[round((start + 1) * RATE) : round((end - 1) * RATE)]
    speech = torch.cat(
        [
            without.samples[round(t.start_seconds * RATE) : round(t.end_seconds * RATE)]
            for t in without.turns
        ]
    )
    measured = 10 * (speech.square().mean() / inner.square().mean()).log10()
    assert abs(float(measured) - ratio_db) < 0.6
    outside = added.clone()
    for start, end in played.music_spans:
        outside[round(start * RATE) : round(end * RATE)] = 0
    assert outside.abs().max() == 0


def test_noise_is_everywhere(voices: dict[str, list[Tensor]]):
    talk = simulate(voices, seconds=30, overlap_share=0, seed=1, noise_snr_db=20)
    assert (talk.samples.view(-1, RATE // 10).square().mean(1) > 0).all()


def test_clips_may_be_files(tmp_path: Path):
    for number, pitch in enumerate((110, 240)):
        soundfile.write(tmp_path / f"{number}.wav", hum(pitch, 2.0).numpy(), RATE)
    files = {"Al": [tmp_path / "0.wav"], "Bo": [tmp_path / "1.wav"]}
    tensors = {"Al": [hum(110, 2.0)], "Bo": [hum(240, 2.0)]}
    read, given = (simulate(v, seconds=30, overlap_share=0, seed=1) for v in (files, tensors))
    assert read.turns == given.turns
    torch.testing.assert_close(read.samples, given.samples, atol=1e-3, rtol=0)


def refusal(**changed: object) -> str:
    arguments = {
        "voices": {"Al": [hum(110, 1)], "Bo": [hum(240, 1)]},
        "seconds": 30,
        "overlap_share": 0.1,
        "seed": 0,
    } | changed
    voices = arguments.pop("voices")
    with pytest.raises(ArgumentError) as caught:
        simulate(voices, **arguments)  # type: ignore[arg-type]
    return str(caught.value)


def test_refuses_what_cannot_be_made():
    assert refusal(voices={}) == "voices must name at least one speaker; got none. Give some clips."
    assert refusal(voices={"Al": [hum(110, 1)], "Bo": []}) == (
        "voices must have clips; got none of Bo. Leave it out."
    )
    assert refusal(seconds=0) == ("seconds must be above 0 and at most 86400; got 0. Make several.")
    assert refusal(overlap_share=0.6) == (
        "overlap_share must lie in 0 to 0.5; got 0.6. Choose one."
    )
    assert refusal(voices={"Al": [hum(110, 1)]}) == (
        "overlap_share must be 0 for one voice; got 0.1. Give another voice."
    )
    assert refusal(voices={"Al": [hum(110, 0.2)], "Bo": [hum(240, 25)]}, overlap_share=0) in (
        "voices must have clips of 0.3 to 20 s of speech; got none of Al. Cut longer ones.",
        "voices must have clips of 0.3 to 20 s of speech; got none of Bo. Cut longer ones.",
    )
    assert refusal(seconds=1) == (
        "1 s must have room for 2 voices and an overlap of 0.1; got none in 40 attempts. "
        "Make it longer."
    )
