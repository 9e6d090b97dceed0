"""What heedmap raises.

Every error of this library is a `HeedmapError` and also the built-in error that a caller would
expect, so that both ``except heedmap.HeedmapError`` and ``except ValueError`` work::

    HeedmapError
    ├── ArgumentError      (ValueError)    a value that no sense can be made of
    │   ├── ShapeError                     sizes that do not fit each other
    │   └── InputError                     a text, file, or place in it that cannot be used
    ├── DTypeError         (TypeError)     a number type that is not supported
    ├── FrozenError        (RuntimeError)  an attempt to write into a map
    ├── BudgetError        (MemoryError)   a dense matrix larger than the caller allows
    ├── UnsupportedError   (RuntimeError)  asked for something that cannot be had exactly
    ├── MissingExtraError  (ImportError)   a package of an optional extra is not installed
    ├── ModelError         (RuntimeError)  a model that cannot be loaded or looked into
    ├── RankError          (RuntimeError)  processes that disagree, or one of them is gone
    └── FetchError         (OSError)       a package or file that could not be fetched or kept

Messages have one form: ``<argument> must <rule>; got <value>. <what to do>.``
"""


class HeedmapError(Exception):
    """The root of all errors that heedmap raises on purpose."""


class ArgumentError(HeedmapError, ValueError):
    """A value that no sense can be made of."""


class ShapeError(ArgumentError):
    """Sizes that do not fit each other."""


class InputError(ArgumentError):
    """A text, a file, or a place in it that cannot be used."""


class DTypeError(HeedmapError, TypeError):
    """A number type that is not supported."""


class FrozenError(HeedmapError, RuntimeError):
    """An attempt to write into a map.

    Not a TypeError: torch takes one in ``weights += 1`` as a hint to try ``weights + 1``.
    """


class BudgetError(HeedmapError, MemoryError):
    """A dense matrix larger than the caller allows."""


class UnsupportedError(HeedmapError, RuntimeError):
    """Something that cannot be had exactly, and is therefore not given at all."""


class MissingExtraError(HeedmapError, ImportError):
    """A package that belongs to an optional extra is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        """Name the `package` that is missing and the `extra` that brings it."""
        super().__init__(
            f"{package} must be installed for this; it is not. Run: pip install 'heedmap[{extra}]'."
        )


class ModelError(HeedmapError, RuntimeError):
    """A model that cannot be loaded or cannot be looked into."""


class RankError(HeedmapError, RuntimeError):
    """Processes that work on one problem and disagree about it, or of which one is gone."""


class FetchError(HeedmapError, OSError):
    """A package or file that could not be fetched or kept."""
