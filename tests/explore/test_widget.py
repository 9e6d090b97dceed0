"""The live map in a notebook's cell."""

import threading
from typing import Any

import IPython
import pytest
import torch

import heedmap
from heedmap.explore import showing
from heedmap.explore.explorer import Explorer
from heedmap.explore.opening import scene_of_map
from heedmap.explore.widget import make_widget


def test_in_a_notebook_a_map_explores_itself_without_a_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    before = set(threading.enumerate())
    widget = heedmap.attention(*torch.randn(3, 6, 4))[1].explore()
    told: list[dict[str, Any]] = []
    ended = threading.Event()

    def hear(message: dict[str, Any], _: list[bytes]) -> None:
        told.append(message)
        if message.get("end"):
            ended.set()

    monkeypatch.setattr(widget._bridge, "_answer", hear)
    widget._take(widget, {"id": 1, "path": "/health"}, [])
    assert ended.wait(20)
    assert told[0]["status"] == 200
    widget._take(widget, "no message of ours", [])
    widget.close()
    assert set(threading.enumerate()) <= before


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(showing.sys.modules, "anywidget", None)
    with pytest.raises(heedmap.errors.MissingExtraError, match="notebook"):
        make_widget(Explorer(scene_of_map(heedmap.AttentionMap.from_weights(torch.eye(2)))))
