"""One pass over a sound: who is heard in each window, their voices, and what else is heard."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from heedmap.media.blocks import SoundBlocks
from heedmap.models.embedding import load_embedding
from heedmap.models.mel import mel_frames
from heedmap.models.packages import Progress
from heedmap.models.segmentation import SAMPLE_RATE_HZ, load_segmentation
from heedmap.models.sound_kinds import load_sound_kinds
from heedmap.speech.activity import ActivityMaker, LocalActivity
from heedmap.speech.kinds import FrameKinds, KindMaker
from heedmap.speech.voices import VoiceMaker, Voices
from heedmap.speech.windows import stretches


@dataclass(frozen=True, eq=False)
class Listened:
    """All that is known of a sound before it is known which voices are one person.

    Attributes:
        activity: Who is heard in each window.
        voices: What they sound like.
        kinds: What is heard in each 20 ms.
        notes: What was done to the sound or is wrong with it, a sentence each.
    """

    activity: LocalActivity
    voices: Voices
    kinds: FrameKinds
    notes: tuple[str, ...]


def listen(
    sound: str | Path | Iterable[Float[Tensor, "_"]],
    *,
    channel: int | None = None,
    progress: Progress | None = None,
    on_seconds: Callable[[float], None] | None = None,
) -> Listened:
    """Return who is heard in each window of a sound, their voices, and what else is heard.

    Args:
        sound: A file, which is read in blocks, or 16 kHz samples piece by piece.
        channel: The one channel of a file to take, counted from 0, instead of the mean of all.
        progress: Called with one line of text before a package is fetched.
        on_seconds: Called with how many seconds of the sound are done, every 40 s of it.

    Raises:
        InputError: if the file is no sound.
        FetchError, ModelError: if the models cannot be had.
        MissingExtraError: if an optional package is not installed.

    Cost: about 0.07 of the length of the sound on one thread, two thirds of it for the voices;
        memory of 600 MB, models included, and of 30 MB more for each hour.
    """
    is_file = isinstance(sound, str | Path)
    blocks = SoundBlocks(sound, channel=channel) if is_file else sound
    activity = ActivityMaker(load_segmentation(progress))
    voices = VoiceMaker(load_embedding(progress))
    kinds = KindMaker(load_sound_kinds(progress))
    peak = 1.0
    for stretch in stretches(blocks):
        samples = stretch.samples[: stretch.length_samples]
        # Kinds depend on the level. The other nets have it taken off: they hear the samples as is.
        peak = max(peak, float(samples.abs().max()))
        mel = mel_frames(samples / peak)
        voices.add(stretch, activity.add(stretch), mel)
        kinds.add(stretch, mel)
        if on_seconds:
            on_seconds(activity.samples / SAMPLE_RATE_HZ)
    heard = activity.finish()
    notes = blocks.notes if isinstance(blocks, SoundBlocks) else ()
    if peak > 1:
        notes += (f"its samples go up to {peak:.3g} times full scale: heard as if up to it",)
    return Listened(heard, voices.finish(), kinds.finish(heard), notes)
