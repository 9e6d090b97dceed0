"""The live map in the cell of a notebook, which the test itself is."""

import base64
import json
import queue
import time
from typing import Any

from playwright.sync_api import Page

from heedmap.explore.explorer import Explorer
from heedmap.explore.scene import Scene
from heedmap.explore.widget import make_widget
from tests.browser.conftest import PATIENCE_SECONDS

HANDLE = "document.getElementById('heedmap').heedmap"

RENDER = """async (source) => {
    const model = {
        listeners: [],
        on(_, listener) { this.listeners.push(listener); },
        send(message) { window.toProgram(JSON.stringify(message)); },
    };
    window.fromProgram = (message, buffers) => {
        const decoded = buffers.map((text) =>
            new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer));
        model.listeners.forEach((listener) => listener(message, decoded));
    };
    const blob = new Blob([source], { type: "text/javascript" });
    const { default: widget } = await import(URL.createObjectURL(blob));
    window.leave = await widget.render({ model, el: document.getElementById("heedmap") });
}"""


class Cell:
    """A widget in a page; what its kernel answers comes when the test delivers it."""

    def __init__(self, page: Page, scene: Scene) -> None:
        """Open a page with nothing but the widget."""
        self.page = page
        self.widget = make_widget(Explorer(scene))
        self._answers: queue.SimpleQueue[tuple[dict[str, Any], list[bytes]]] = queue.SimpleQueue()
        self.widget._bridge._answer = lambda message, buffers: self._answers.put((message, buffers))
        page.expose_function("toProgram", self._take)
        page.context.set_offline(False)
        page.route(
            "http://notebook.test/",
            lambda route: route.fulfill(
                body="<!doctype html><div id=heedmap></div>", content_type="text/html"
            ),
        )
        page.goto("http://notebook.test/")
        page.add_style_tag(content=self.widget._css)
        page.evaluate(RENDER, self.widget._esm)

    @property
    def has_answers(self) -> bool:
        return not self._answers.empty()

    def deliver_until(self, condition: str) -> None:
        """Deliver answers until a condition holds."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"{condition} does not come true"
            while self.has_answers:
                message, buffers = self._answers.get()
                texts = [base64.b64encode(buffer).decode() for buffer in buffers]
                self.page.evaluate("([m, b]) => window.fromProgram(m, b)", [message, texts])
            self.page.wait_for_timeout(10)

    def quiet(self) -> None:
        """Deliver answers until all that was asked for is drawn."""
        # Waiting for the promise itself would keep its answers from coming.
        self.page.evaluate(f"void {HANDLE}.whenQuiet().then(() => {{ window.quiet = true; }})")
        self.deliver_until("window.quiet === true")

    def close(self) -> None:
        self.widget.close()

    def _take(self, text: str) -> None:
        self.widget._take(self.widget, json.loads(text), [])
