"""From a text, an audio file or a video file to something that attention can look at.

`open_media` says by its content what a source is and returns a `Text`, a `Sound` or a `Film`. The
`sequence` of each is values and an axis, from plain features that need no model. Its structure
shows in softmax(values · valuesᵀ / `temperature`), the weights of attention with the identity as
projections and 1 / `temperature` as scale. `notes` say what was done to it or is wrong with it.
"""

from heedmap.media.blocks import SoundBlocks
from heedmap.media.film import Film, Frame
from heedmap.media.opening import open_media
from heedmap.media.sound import Sound
from heedmap.media.text import Text

__all__ = [
    "Film",
    "Frame",
    "Sound",
    "SoundBlocks",
    "Text",
    "open_media",
]
