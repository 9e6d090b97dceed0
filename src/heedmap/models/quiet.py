"""Keeps transformers from chatting while models are loaded; what it raises comes through."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from heedmap.errors import MissingExtraError


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hold back progress bars, advice and warnings of transformers and its hub, then restore them.

    Raises:
        MissingExtraError: if transformers is not installed.

    Example:
        >>> with quiet_transformers():
        ...     pass
    """
    try:
        from huggingface_hub.utils import (
            are_progress_bars_disabled,
            disable_progress_bars,
            enable_progress_bars,
        )
        from huggingface_hub.utils import logging as hub_logging
        from transformers.utils import logging
    except ImportError as error:
        raise MissingExtraError("transformers", "models") from error
    verbosity, hub_verbosity = logging.get_verbosity(), hub_logging.get_verbosity()
    bars, hub_bars = logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
    logging.disable_progress_bar()
    disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if bars:
            logging.enable_progress_bar()
        if hub_bars:
            enable_progress_bars()
