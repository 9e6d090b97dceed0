"""Other people's models: their attention, captured while they run."""

from heedmap.watch.capture import Captured, capture

__all__ = ["Captured", "capture"]
