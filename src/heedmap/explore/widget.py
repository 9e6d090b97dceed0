"""The live map in a notebook's cell, over the kernel's own channel."""

from typing import Any

from heedmap.errors import MissingExtraError
from heedmap.explore.bridge import Bridge
from heedmap.explore.explorer import Explorer
from heedmap.explore.page_modules import linked, style

_RENDER = """\
const { mount } = await import(places.get("main.js"));
const { notebookTransport } = await import(places.get("transport_notebook.js"));
const { bringFont } = await import(places.get("font.js"));
export default {
  render({ model, el }) {
    const transport = notebookTransport(model);
    const view = mount(el, transport);
    bringFont(transport);
    return () => view.destroy();
  },
};
"""


def make_widget(explorer: Explorer) -> Any:
    """Return an anywidget that shows what an explorer has; no port is opened.

    It answers while the kernel is idle, as all widgets. Closing it ends its threads.

    Raises:
        MissingExtraError: if anywidget is not installed.
    """
    try:
        import anywidget
    except ImportError as error:
        raise MissingExtraError("anywidget", "notebook") from error

    class LiveMap(anywidget.AnyWidget):
        """The page, and the bridge that answers it."""

        _esm = linked("main.js", "transport_notebook.js", "font.js") + _RENDER
        _css = style()

        def __init__(self) -> None:
            super().__init__()
            self._bridge = Bridge(explorer, self.send)
            self.on_msg(self._take)

        def _take(self, _: Any, message: Any, __: Any) -> None:
            if isinstance(message, dict):
                self._bridge.take(message)

        def close(self) -> None:
            """End the widget and its threads."""
            self._bridge.close()
            super().close()

    return LiveMap()
