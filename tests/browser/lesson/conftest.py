"""The lesson, served and opened; whatever goes wrong in it fails the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from heedmap.explore.running import Running
from heedmap.lesson.app import make_app
from heedmap.lesson.examples import Examples
from tests.browser.conftest import PATIENCE_SECONDS, WATCH_POLICY

OpenLesson = Callable[..., Page]


@pytest.fixture(scope="module")
def serving() -> Iterator[Callable[[], Running]]:
    """Return a function that starts a server; a token is good for one browser."""
    started: list[Running] = []

    def start() -> Running:
        started.append(Running(Examples(), make=make_app))
        return started[-1]

    yield start
    for running in started:
        running.close()


@pytest.fixture
def open_lesson(browser: Browser, serving: Callable[[], Running]) -> Iterator[OpenLesson]:
    """Return a function that opens the lesson, in whose page nothing may go wrong."""
    faults: list[str] = []
    opened: list[Page] = []

    def open_page(
        *, width: int = 1200, height: int = 900, locale: str = "zh-CN", **how: Any
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, locale=locale, **how
        )
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE_SECONDS)
        running = serving()
        origin = running.url.split("/open")[0]
        watch(page, faults, origin)
        page.goto(running.url)
        page.locator("[data-matrix=output]").wait_for()
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        faults += page.evaluate("window.violations")
        page.context.close()
    assert faults == []


def watch(page: Page, faults: list[str], origin: str) -> None:
    page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("response", lambda r: faults.append(f"{r.status} {r.url}") if r.status > 399 else None)
    page.on(
        "request",
        lambda r: None if r.url.startswith(origin) else faults.append(f"foreign: {r.url}"),
    )
    page.add_init_script(WATCH_POLICY)
