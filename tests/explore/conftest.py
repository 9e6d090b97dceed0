"""A server that runs, for clients that mean no good: its patience is short."""

from collections.abc import Iterator

import pytest

from heedmap.explore.running import Running
from heedmap.explore.scene import Media

from .serving import SHORT, SOUND, Client, GatedExplorer


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> GatedExplorer:
    path = tmp_path_factory.mktemp("media") / "sound.wav"
    path.write_bytes(SOUND)
    return GatedExplorer(media=(Media("audio", "audio/wav", "sound.wav", path),))


@pytest.fixture(scope="module")
def attacked(gated: GatedExplorer) -> Iterator[Client]:
    with Running(gated, limits=SHORT) as running:
        yield Client(running).open()


@pytest.fixture
def client(attacked: Client, gated: GatedExplorer) -> Iterator[Client]:
    """A client whose server must answer as ever when the test is over."""
    gated.gate.set()
    gated.tile_bytes = 0
    gated.asked.clear()
    gated.begun.clear()
    gated.stopped.clear()
    yield attacked
    gated.gate.set()
    assert attacked.is_healthy()
    assert attacked.get("/tiles/0/0/mean/0/0/0").status == 200
