"""The moments that stand for voices: what one hears of a voice when it is played by itself."""

import torch
from jaxtyping import Int
from torch import Tensor

from heedmap.axes import Axis
from heedmap.speech.activity import LocalActivity
from heedmap.speech.assigning import Assigned
from heedmap.speech.linking import Linked
from heedmap.speech.voices import Voices


def moments_of(
    activity: LocalActivity, voices: Voices, linked: Linked, assigned: Assigned
) -> tuple[Axis, Int[Tensor, " voices"]]:
    """Return a moment for each voice, in the order of time, and which voice each of them is.

    The moment of a voice is the longest stretch of its window in which it is heard alone; where it
    is never alone, the longest in which it is heard. Its label is the name of its speaker.

    Args:
        activity: Who is heard in each window.
        voices: The voices of these windows.
        linked: Whose they are.
        assigned: What the speakers are called.

    Cost: one pass over the windows.
    """
    found = []
    for voice, (window, local, speaker) in enumerate(
        zip(voices.window.tolist(), voices.local.tolist(), linked.cluster.tolist(), strict=True)
    ):
        heard = activity.active[window, :, local]
        alone = heard & (activity.active[window].sum(1) == 1)
        begin, end = _longest(alone if bool(alone.any()) else heard)
        first = int(activity.start_frames[window])
        start, stop = (
            activity.first_frame_seconds + (first + frame) * activity.frame_seconds
            for frame in (begin, end)
        )
        end_seconds = min(stop, activity.duration_seconds)
        found.append((start, end_seconds, assigned.names[speaker], voice))
    found.sort()
    axis = Axis(
        "audio",
        tuple(name for _, _, name, _ in found),
        tuple((start, end) for start, end, _, _ in found),
    )
    return axis, torch.tensor([voice for *_, voice in found], dtype=torch.long)


def _longest(heard: Tensor) -> tuple[int, int]:
    """Return the first frame of the longest run of frames that are marked, and the one after it."""
    edges = torch.nn.functional.pad(heard.int(), (1, 1)).diff()
    begins, ends = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
    longest = int((ends - begins).argmax())
    return int(begins[longest]), int(ends[longest])
