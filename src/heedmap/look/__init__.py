"""A first look at a text, a sound or a film: pictures, figures and names of all heads."""

from heedmap.look.looking import Look, look

__all__ = ["Look", "look"]
