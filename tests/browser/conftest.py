"""A real server and a real browser; whatever goes wrong in the page fails the test."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, sync_playwright

from heedmap.explore.explorer import Explorer
from heedmap.explore.running import Running
from heedmap.explore.scene import Scene

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
]
PATIENCE_SECONDS = 10
WATCH_POLICY = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(event.violatedDirective + " " + event.blockedURI));
"""


@dataclass
class Opened:
    """A page with a live map, and what went wrong in it."""

    page: Page
    running: Running
    context: BrowserContext
    faults: list[str] = field(default_factory=list)

    def view(self, call: str) -> Any:
        """Return what a call on the map's handle gives, such as ``state()``."""
        return self.page.evaluate(f"document.getElementById('heedmap').heedmap.{call}")

    def quiet(self) -> None:
        """Wait until all that was asked for is drawn."""
        self.until("document.getElementById('heedmap')?.heedmap !== undefined")
        self.view("whenQuiet()")

    def until(self, condition: str) -> None:
        """Wait until a condition holds; Playwright's own way needs `eval`, which the page forbids.

        Raises:
            AssertionError: if it does not, in ten seconds.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"{condition} does not come true"
            self.page.wait_for_timeout(20)

    def set(self, **parts: Any) -> None:
        self.page.evaluate(
            "parts => document.getElementById('heedmap').heedmap.set(parts)",
            parts,
        )
        self.quiet()

    def click_cell(self, query: int, key: int, **how: Any) -> None:
        left, top = self.view(f"placeOf({query}, {key})")
        self.page.mouse.click(left, top, **how)
        self.quiet()


OpenPage = Callable[..., Opened]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Return the browser; Playwright's event loop must end before other tests run loops."""
    if not CHROMIUM.exists():
        pytest.fail(f"The tests of the page need Debian's chromium; there is no {CHROMIUM}.")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Return a function that serves a scene and opens it.

    Afterwards every page must be without errors on its console, violations of the policy, failed
    or foreign requests; `allow_faults` leaves that to the test, `routes` are answered by it.
    """
    opened: list[tuple[Opened, bool]] = []

    def open_scene(
        scene: Scene,
        *,
        width: int = 1200,
        height: int = 900,
        locale: str = "en-US",
        link: str = "",
        routes: dict[str, Callable[[Route], None]] | None = None,
        allow_faults: bool = False,
        quiet: bool = True,
        **how: Any,
    ) -> Opened:
        running = Running(Explorer(scene))
        context = browser.new_context(
            viewport={"width": width, "height": height}, locale=locale, **how
        )
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE_SECONDS)
        made = Opened(page, running, context)
        opened.append((made, allow_faults))
        _record(made, running.url.split("/open")[0])
        page.add_init_script(WATCH_POLICY)
        for pattern, answer in (routes or {}).items():
            page.route(pattern, answer)
        page.goto(running.url)
        made.until("document.getElementById('heedmap')?.heedmap !== undefined")
        if link:
            page.goto(f"{running.url.split('/open')[0]}/#{link}")
            page.reload()
        if quiet:
            made.quiet()
        return made

    yield open_scene
    faults = []
    for made, allowed in opened:
        if not allowed:
            faults += made.faults + made.page.evaluate("window.violations")
        made.context.close()
        made.running.close()
    assert faults == []


def _record(made: Opened, origin: str) -> None:
    page, faults = made.page, made.faults
    page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("response", lambda r: faults.append(f"{r.status} {r.url}") if r.status > 399 else None)
    page.on(
        "request",
        lambda r: (
            None if r.url.startswith((origin, "blob:")) else faults.append(f"foreign: {r.url}")
        ),
    )
