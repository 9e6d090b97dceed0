"""Who speaks when, what is heard, and how well that agrees with a reference."""

from heedmap.speech.hearing import Heard, hear
from heedmap.speech.rttm import read_rttm, read_uem, write_rttm
from heedmap.speech.scoring import score
from heedmap.speech.turns import Turn

__all__ = ["Heard", "Turn", "hear", "read_rttm", "read_uem", "score", "write_rttm"]
