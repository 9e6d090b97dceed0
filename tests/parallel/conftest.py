"""Processes that all tests of a run share."""

from collections.abc import Iterator

import pytest

from .processes import Processes


@pytest.fixture(scope="session")
def processes(request: pytest.FixtureRequest) -> Iterator[Processes]:
    """Return what runs a function on several ranks: ``processes.run(3, function, *arguments)``."""
    made = Processes(checked=request.config.pluginmanager.hasplugin("tests.checked"))
    yield made
    made.close()
