"""A first look at a text, a sound or a film: pictures, figures and names of all heads; words."""

from heedmap.look.looking import Look, look
from heedmap.look.transcript import Transcript, transcribe

__all__ = ["Look", "Transcript", "look", "transcribe"]
