"""The live map over messages, as a notebook's page sends them."""

import json
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import heedmap
from heedmap.explore.bridge import Bridge
from heedmap.explore.explorer import Explorer
from heedmap.explore.opening import scene_of_map


class Page:
    """Sends messages, and puts the answers together."""

    def __init__(self) -> None:
        weights = heedmap.attention(*torch.randn(3, 2, 300, 8))[1]
        self.weights = weights
        self.heads: dict[Any, dict[str, Any]] = {}
        self.bodies: dict[Any, bytes] = {}
        self.ended: dict[Any, threading.Event] = {}
        self.bridge = Bridge(Explorer(scene_of_map(weights)), self.hear)

    def hear(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        number = message["id"]
        if message.get("piece"):
            self.bodies[number] += buffers[0]
        elif message.get("end"):
            self.ended[number].set()
        else:
            self.heads[number] = message

    def ask(self, path: str, **further: Any) -> tuple[dict[str, Any], bytes]:
        number = len(self.ended)
        self.bodies[number], self.ended[number] = b"", threading.Event()
        self.bridge.take({"id": number, "method": "GET", "path": path, **further})
        assert self.ended[number].wait(20)
        return self.heads[number], self.bodies[number]


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.bridge.close()


def test_answers(page: Page) -> None:
    head, body = page.ask("/description")
    assert (head["status"], head["type"]) == (200, "application/json")
    assert json.loads(body)["layers"][0]["queries"] == 300
    head, body = page.ask("/cells/0/1/3/7")
    assert json.loads(body)["weight"] == pytest.approx(float(page.weights[1, 3, 7]))


def test_many_tiles(page: Page) -> None:
    names = [[0, 0, "mean", 1, 0, 0], [0, 0, "mean", 1, 1, 1]]
    _, body = page.ask("/tiles", method="POST", body=json.dumps({"tiles": names}))
    places = []
    while body:
        place, size = struct.unpack("<II", body[:8])
        assert body[8:12] == b"HMT1"
        places.append(place)
        body = body[8 + size :]
    assert sorted(places) == [0, 1]


def test_refusals(page: Page) -> None:
    head, body = page.ask("/tiles/0/0/mean/9/0/0")
    assert head["status"] == 404
    assert "zoom must be 0 to 1; got 9" in json.loads(body)["error"]
    page.bridge.take({"what": "else"})
    page.bridge.take({"id": 7, "cancel": True})
    assert page.ask("/health")[0]["status"] == 200


def test_who_cancels_stops_the_work(monkeypatch: pytest.MonkeyPatch, page: Page) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def endless(*arguments: Any) -> bytes:
        stop = arguments[-1]
        begun.set()
        while not stop():
            pass
        stopped.set()
        return b""

    monkeypatch.setattr(Explorer, "tile", lambda _, *arguments: endless(*arguments))
    page.ended["tile"], page.bodies["tile"] = threading.Event(), b""
    page.bridge.take({"id": "tile", "path": "/tiles/0/0/mean/0/0/0"})
    assert begun.wait(20)
    page.bridge.take({"id": "tile", "cancel": True})
    assert stopped.wait(20)


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    page = Page()
    page.ask("/health")
    page.bridge.close()
    assert set(threading.enumerate()) <= before
