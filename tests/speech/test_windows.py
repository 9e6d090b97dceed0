"""Windows: the same whatever the blocks, with all of the sound in them."""

from itertools import pairwise

import pytest
import torch

from heedmap.models.segmentation import FRAME_SAMPLES, WINDOW_SAMPLES
from heedmap.speech.windows import STEP_FRAMES, WINDOW_FRAMES, WINDOWS_AT_ONCE, Stretch, stretches

STEP = STEP_FRAMES * FRAME_SAMPLES
STRETCH = WINDOW_SAMPLES + (WINDOWS_AT_ONCE - 1) * STEP
LENGTHS = (
    *(1, 399, 4_800, WINDOW_SAMPLES - 1, WINDOW_SAMPLES, WINDOW_SAMPLES + 1),
    *(WINDOW_SAMPLES + STEP, STRETCH - 1, STRETCH, STRETCH + 1, STRETCH + STEP, 3 * STRETCH + 77),
)


def starts_of(found: list[Stretch]) -> list[int]:
    return [part.start_frame + start for part in found for start in part.starts]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_sound_is_in_the_windows(length: int) -> None:
    samples = torch.arange(1, length + 1).float()
    found = list(stretches([samples]))
    starts = starts_of(found)
    assert starts == sorted(set(starts))
    assert all(b - a <= STEP_FRAMES for a, b in pairwise(starts))
    beyond = starts[-1] * FRAME_SAMPLES + WINDOW_SAMPLES - length
    assert 0 <= beyond < (FRAME_SAMPLES if length > WINDOW_SAMPLES else WINDOW_SAMPLES)
    for part in found:
        windows = part.windows()
        assert windows.shape == (len(part.starts), WINDOW_SAMPLES)
        for start, window in zip(part.starts, windows, strict=True):
            first = (part.start_frame + start) * FRAME_SAMPLES
            heard = samples[first : first + WINDOW_SAMPLES]
            assert torch.equal(window[: len(heard)], heard)
            assert not window[len(heard) :].any()
    last = found[-1]
    assert last.start_frame * FRAME_SAMPLES + last.length_samples == length


@pytest.mark.parametrize("block", [1024, 65_536, 2_000_000])
def test_the_windows_do_not_depend_on_the_blocks(block: int) -> None:
    samples = torch.rand(2 * STRETCH + 12_345)
    whole, parts = list(stretches([samples])), list(stretches(samples.split(block)))
    assert starts_of(whole) == starts_of(parts)
    for one, other in zip(whole, parts, strict=True):
        assert one.length_samples == other.length_samples
        assert torch.equal(one.samples, other.samples)


def test_two_hours_are_never_held() -> None:
    block = torch.zeros(65_536)
    blocks = 2 * 3600 * 16_000 // len(block)
    found = stretches(block for _ in range(blocks))
    parts = [(len(part.samples), len(part.starts)) for part in found]
    assert max(length for length, _ in parts) <= STRETCH + 2 * STEP
    length = blocks * len(block)
    windows = sum(starts for _, starts in parts)
    assert windows == (length - WINDOW_SAMPLES) // STEP + 2


def test_nothing_comes_of_nothing() -> None:
    assert list(stretches([])) == []
    assert list(stretches([torch.zeros(0)])) == []


def test_a_window_has_as_many_frames_as_the_net_says() -> None:
    assert WINDOW_FRAMES == 589
