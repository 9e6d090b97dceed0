"""From a text, an audio file or a video file to something that attention can look at.

`open_media` says by its content what a source is and returns a `Text`, a `Sound` or a `Film`. The
`sequence` of each is values and an axis, from plain features that need no model; the scores of
attention over it are divided by the temperature that is named after its kind.
"""

from heedmap.media.film import Film, Frame
from heedmap.media.film_features import FILM_TEMPERATURE
from heedmap.media.opening import open_media
from heedmap.media.sound import Sound
from heedmap.media.sound_features import SOUND_TEMPERATURE
from heedmap.media.text import TEXT_TEMPERATURE, Text

__all__ = [
    "FILM_TEMPERATURE",
    "SOUND_TEMPERATURE",
    "TEXT_TEMPERATURE",
    "Film",
    "Frame",
    "Sound",
    "Text",
    "open_media",
]
