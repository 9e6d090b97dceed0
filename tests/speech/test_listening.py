"""From a sound to activity, voices and kinds: sums with made nets, bad input with real ones."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from heedmap.errors import InputError
from heedmap.models.embedding import SpeakerEmbedding
from heedmap.models.mel import mel_frames
from heedmap.models.packages import PACKAGED, fetch_file
from heedmap.models.segmentation import FRAME_SAMPLES, SPEAKER_SETS, SpeakerSegmentation
from heedmap.models.sound_kinds import SoundKinds
from heedmap.speech.activity import ActivityMaker, LocalActivity, decoded, frames_within
from heedmap.speech.kinds import KIND_NAMES, KIND_SECONDS, FrameKinds, KindMaker
from heedmap.speech.listening import Listened, listen
from heedmap.speech.voices import VoiceMaker, make_voices
from heedmap.speech.windows import STEP_FRAMES, WINDOW_FRAMES, stretches

RATE = 16_000


class LoudSegmentation(SpeakerSegmentation):
    """Hears the first speaker where samples are above 0.1, the second where they are below −0.1."""

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        middles = samples[:, 495:][:, ::FRAME_SAMPLES][:, :WINDOW_FRAMES]
        chosen = torch.where(middles > 0.1, 1, torch.where(middles < -0.1, 2, 0))
        chosen = torch.where(middles.abs() > 0.8, 4, chosen)
        certain = torch.nn.functional.one_hot(chosen, len(SPEAKER_SETS)) * 20.0
        return certain.log_softmax(-1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def activity_of(samples: torch.Tensor) -> LocalActivity:
    maker = ActivityMaker(LoudSegmentation())
    for stretch in stretches([samples]):
        maker.add(stretch)
    return maker.finish()


def test_frames_are_at_their_times() -> None:
    samples = torch.zeros(60 * RATE)
    samples[20 * RATE : 21 * RATE] = 0.5
    samples[41 * RATE : 43 * RATE] = -0.5
    found = activity_of(samples)
    assert found.duration_seconds == 60
    assert found.frames == frames_within(60.0)
    assert torch.equal(found.start_seconds, found.start_frames.double() * (FRAME_SAMPLES / RATE))
    for local, begin, end in ((0, 20, 21), (1, 41, 43)):
        for start, window in zip(found.start_frames.tolist(), found.active, strict=True):
            frames = window[:, local].nonzero()[:, 0] + start
            times = found.first_frame_seconds + (frames.double() + 0.5) * found.frame_seconds
            assert ((times >= begin) & (times < end)).all()
        heard = found.active[:, :, local].any(1)
        assert int(heard.sum()) >= 3
    assert not found.active[:, :, 2].any()


def test_nobody_is_heard_after_the_end() -> None:
    found = activity_of(torch.full((4_100,), 0.5))
    assert found.active.shape == (1, WINDOW_FRAMES, 3)
    assert found.active[0].sum(0).tolist() == [14, 0, 0]
    assert (found.frames, frames_within(0.25), frames_within(0.02)) == (14, 14, 0)


def test_the_most_probable_set_of_speakers_is_heard() -> None:
    probabilities = torch.tensor([[0.4, 0.3, 0.3, 0, 0, 0, 0], [0.4, 0.1, 0, 0, 0, 0, 0.5]])
    assert decoded(probabilities.log()).tolist() == [[False, False, False], [False, True, True]]


def test_a_sound_without_samples_has_no_windows() -> None:
    found = activity_of(torch.zeros(0))
    assert (found.duration_seconds, found.frames) == (0, 0)
    assert found.active.shape == (0, WINDOW_FRAMES, 3)


class MeanEmbedding(SpeakerEmbedding):
    """Counts the frames that it is given."""

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        assert float(mel.mean(1).abs().max()) < 1e-3
        return torch.full((1, 192), float(mel.shape[1]))


def test_a_voice_is_what_is_heard_alone() -> None:
    samples = torch.rand(10 * RATE) * 0.1
    samples[2 * RATE : 4 * RATE] += 0.5  # the first alone
    samples[4 * RATE : 6 * RATE] += 0.9  # both
    samples[6 * RATE : 7 * RATE] -= 0.6  # the second alone
    activity, voices = ActivityMaker(LoudSegmentation()), VoiceMaker(MeanEmbedding())
    for stretch in stretches([samples]):
        voices.add(stretch, activity.add(stretch), mel_frames(stretch.samples))
    found = voices.finish()
    assert (found.window.tolist(), found.local.tolist()) == ([0, 0], [0, 1])
    assert torch.allclose(found.seconds, torch.tensor([2.0, 1.0]), atol=0.03)
    assert torch.allclose(found.spans, torch.tensor([[2.0, 6.0], [4.0, 7.0]]), atol=0.02)
    assert torch.allclose(found.embeddings.norm(dim=1), torch.ones(2))


def test_who_is_hardly_heard_alone_is_heard_with_others_and_counts_for_little() -> None:
    samples = torch.zeros(10 * RATE)
    samples[2 * RATE : 4 * RATE] = 0.9
    samples[6 * RATE : 6 * RATE + 700] = 0.5
    activity, voices = ActivityMaker(LoudSegmentation()), VoiceMaker(MeanEmbedding())
    for stretch in stretches([samples]):
        voices.add(stretch, activity.add(stretch), mel_frames(stretch.samples))
    found = voices.finish()
    assert found.local.tolist() == [0, 1]
    assert found.seconds[0] < 0.1
    assert found.seconds[1] == pytest.approx(0.01)


def test_who_is_hardly_heard_at_all_has_no_voice() -> None:
    samples = torch.zeros(10 * RATE)
    samples[6 * RATE : 6 * RATE + 700] = 0.5
    activity, voices = ActivityMaker(LoudSegmentation()), VoiceMaker(MeanEmbedding())
    for stretch in stretches([samples]):
        voices.add(stretch, activity.add(stretch), mel_frames(stretch.samples))
    found = voices.finish()
    assert found.embeddings.shape == (0, 192)
    assert found.spans.shape == (0, 2)


def test_kinds_in_stretches_are_those_of_the_whole() -> None:
    class Kept(KindMaker):
        def probabilities(self) -> torch.Tensor:
            return torch.cat(self._pieces)

    net = SoundKinds().eval()
    samples = torch.rand(60 * RATE) - 0.5
    maker = Kept(net)
    for stretch in stretches([samples]):
        maker.add(stretch, mel_frames(stretch.samples[: stretch.length_samples]))
    with torch.inference_mode():
        whole = net(mel_frames(samples)[None])[0]
    assert maker.probabilities().shape == whole.shape
    assert torch.allclose(maker.probabilities(), whole, atol=1e-5)


class ToldKinds(SoundKinds):
    """Hears music in the second half."""

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        probabilities = torch.zeros(*mel.shape[:2], 3)
        probabilities[:, mel.shape[1] // 2 :, 2] = 1
        return probabilities


def test_kinds_are_at_their_times_and_several_may_hold() -> None:
    samples = torch.zeros(10 * RATE)
    samples[2 * RATE : 7 * RATE] = 0.5
    samples[3 * RATE : 4 * RATE] = 0.9
    activity, kinds = ActivityMaker(LoudSegmentation()), KindMaker(ToldKinds())
    for stretch in stretches([samples]):
        activity.add(stretch)
        kinds.add(stretch, mel_frames(stretch.samples))
    found = kinds.finish(activity.finish())
    assert len(found.background) == 10 / KIND_SECONDS
    ((begin, end),) = found.spans("speech")
    assert (begin, end) == pytest.approx((2, 7), abs=0.04)
    assert found.spans("overlap")[0] == pytest.approx((3, 4), abs=0.04)
    ((begin, end),) = found.spans("music")
    assert (begin, end) == pytest.approx((5, 10), abs=0.2)
    assert torch.equal(found.background, ~(found.speech | found.music))


# From here on with the real nets.


@pytest.fixture(scope="module")
def sample() -> Listened:
    return listen(fetch_file(PACKAGED["sample.wav"]))


@pytest.mark.slow
def test_the_two_speakers_of_the_sample_are_told_apart(sample: Listened) -> None:
    """Voices of one speaker are all nearer to each other than any two of different ones."""
    # In the first windows the second speaker says a word or two.
    later = sample.voices.embeddings[sample.voices.window > 2]
    alike = later @ later.T
    group = alike[-1] > 0.6
    same = group[:, None] == group[None]
    assert 2 < int(group.sum()) < len(group) - 2
    assert float(alike[same].min()) > float(alike[~same].max())


@pytest.mark.slow
def test_what_is_heard_of_the_sample(sample: Listened) -> None:
    kinds = sample.kinds
    assert len(kinds.speech) == 1500
    assert 0.6 < float(kinds.speech.float().mean()) < 0.85
    assert float(kinds.music.float().mean()) < 0.02
    assert 0 < float(kinds.overlap.float().mean()) < 0.15
    assert sample.notes == ()


@pytest.mark.slow
def test_blocks_and_a_file_give_the_same_voices(sample: Listened) -> None:
    samples, _ = soundfile.read(fetch_file(PACKAGED["sample.wav"]), dtype="float32")
    activity, voices = make_voices(torch.from_numpy(samples).split(10_000))
    assert torch.equal(activity.active, sample.activity.active)
    assert torch.equal(voices.embeddings, sample.voices.embeddings)


def speech(seconds: float) -> np.ndarray:
    samples, _ = soundfile.read(fetch_file(PACKAGED["sample.wav"]), dtype="float32")
    return samples[8 * RATE : 8 * RATE + round(seconds * RATE)]


def assert_whole(found: Listened) -> None:
    assert found.voices.embeddings.isfinite().all()
    frames = {len(getattr(found.kinds, name)) for name in KIND_NAMES}
    assert frames == {-(-round(found.activity.duration_seconds * 1000) // 20)}


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.001, 0.3, 3])
def test_short_clips_are_heard_as_far_as_they_go(tmp_path: Path, seconds: float) -> None:
    path = tmp_path / "clip.wav"
    soundfile.write(path, speech(seconds), RATE)
    found = listen(path)
    assert_whole(found)
    assert found.activity.duration_seconds == seconds
    assert len(found.voices.window) <= 2


@pytest.mark.slow
def test_silence_has_no_voices(tmp_path: Path) -> None:
    path = tmp_path / "silence.wav"
    soundfile.write(path, np.zeros(12 * RATE), RATE)
    found = listen(path)
    assert found.notes == ("every sample is 0: the sound is silent",)
    assert_whole(found)
    assert len(found.voices.window) == 0
    assert found.kinds.background.all()


@pytest.mark.slow
def test_telephone_antiphase_clipped_and_six_channels(tmp_path: Path) -> None:
    said = speech(10)
    path = tmp_path / "bad.wav"
    soundfile.write(path, said[::2], 8_000)
    found = listen(path)
    assert found.notes == ("resampled from 8000 Hz to 16000 Hz",)
    assert len(found.voices.window) >= 1
    soundfile.write(path, np.stack([said, -said], 1), RATE, subtype="FLOAT")
    found = listen(path)
    assert "they cancel each other; take one of them with --channel 0" in found.notes[0]
    assert len(found.voices.window) == 0
    assert len(listen(path, channel=1).voices.window) >= 1
    soundfile.write(path, np.clip(said * 30, -1, 1), RATE)
    found = listen(path)
    assert "at full scale: it seems to be clipped" in found.notes[0]
    assert_whole(found)
    soundfile.write(path, np.stack([said] * 6, 1), RATE)
    found = listen(path)
    assert_whole(found)
    assert len(found.voices.window) >= 1


@pytest.mark.slow
def test_floats_beyond_full_scale_are_heard_like_others(tmp_path: Path) -> None:
    said = speech(10)
    path = tmp_path / "loud.wav"
    soundfile.write(path, said / np.abs(said).max(), RATE, subtype="FLOAT")
    usual = listen(path)
    soundfile.write(path, said * 32_768, RATE, subtype="FLOAT")
    found = listen(path)
    assert "times full scale: heard as if up to it" in found.notes[0]
    assert torch.equal(found.activity.active, usual.activity.active)
    assert torch.equal(found.kinds.speech, usual.kinds.speech)


@pytest.mark.slow
def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a file that exists"):
        listen(tmp_path / "none.wav")


def test_spans_of_kinds() -> None:
    yes = torch.tensor([True] * 3 + [False] * 2 + [True])
    kinds = FrameKinds(~yes, yes, ~yes, ~yes)
    assert kinds.spans("speech") == [(0, 0.06), (0.1, 0.12)]
    assert kinds.spans("background") == [(0.06, 0.1)]


def test_the_step_between_windows_keeps_the_grid_of_mel_frames() -> None:
    assert STEP_FRAMES * FRAME_SAMPLES % 160 != 0
    assert 16 * STEP_FRAMES * FRAME_SAMPLES % 160 == 0
