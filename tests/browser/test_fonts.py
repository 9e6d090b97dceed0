"""Chinese in the live map, in a browser that has no font for it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, Route

from heedmap import AttentionMap, Axis
from heedmap.explore.explorer import Explorer
from heedmap.explore.offline import write_page
from heedmap.explore.opening import scene_of_map
from heedmap.explore.running import Running
from heedmap.explore.scene import Scene
from tests.bare_machine import settings_of_fonts
from tests.browser.cell import Cell
from tests.browser.conftest import CHROMIUM, FLAGS, PATIENCE_SECONDS

WORDS = "他说他今天不能来"


def scene() -> Scene:
    axis = Axis.of_tokens(WORDS, list(WORDS), [(i, i + 1) for i in range(len(WORDS))])
    return scene_of_map(AttentionMap.from_weights(torch.eye(len(WORDS))), axis=axis)


@pytest.fixture(scope="module")
def bare(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser on a machine whose fonts have no Chinese."""
    settings = settings_of_fonts(tmp_path_factory.mktemp("fonts"))
    started = browser.browser_type.launch(
        executable_path=CHROMIUM,
        args=FLAGS,
        env={**os.environ, "FONTCONFIG_FILE": str(settings)},
    )
    yield started
    started.close()


@pytest.fixture
def page(bare: Browser) -> Iterator[Page]:
    """Return a page of it on which nothing may go wrong."""
    context = bare.new_context(viewport={"width": 1200, "height": 900}, locale="zh-CN")
    opened = context.new_page()
    opened.set_default_timeout(1000 * PATIENCE_SECONDS)
    faults: list[str] = []
    opened.on(
        "console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None
    )
    opened.on("pageerror", lambda error: faults.append(str(error)))
    yield opened
    context.close()
    assert faults == []


def look_of(page: Page, character: str) -> bytes:
    """Return the picture of a character as the map writes it; empty boxes all look the same."""
    page.evaluate(
        """async (character) => {
            const shown = document.createElement("div");
            shown.id = "shown";
            shown.textContent = character;
            Object.assign(shown.style, { position: "fixed", inset: "0 auto auto 0", zIndex: 99,
                width: "60px", height: "70px", fontSize: "48px", background: "white" });
            document.querySelector(".heedmap").append(shown);
            await document.fonts.ready;
        }""",
        character,
    )
    picture = page.locator("#shown").screenshot()
    page.evaluate("document.getElementById('shown').remove()")
    return picture


def assert_written(page: Page) -> None:
    pictures = {character: look_of(page, character) for character in "他能键"}
    assert len(set(pictures.values())) == len(pictures)


def test_the_server_brings_the_font_and_what_was_drawn_before_is_drawn_again(page: Page) -> None:
    held: list[Route] = []
    page.route("**/HeedmapSansSC-Regular.otf", lambda route: held.append(route))
    with Running(Explorer(scene())) as running:
        page.goto(running.url)
        page.locator(".hm-map").wait_for()
        view = "document.getElementById('heedmap').heedmap"
        page.evaluate(f"{view}.whenQuiet()")
        # Playwright's own screenshots wait for fonts.
        drawn = "document.querySelector('.hm-axis-queries').toDataURL()"
        boxes = page.evaluate(drawn)
        assert len(held) == 1
        with page.expect_response("**/HeedmapSansSC-Regular.otf"):
            held[0].continue_()
        assert_written(page)
        page.evaluate(f"{view}.whenQuiet()")
        assert page.evaluate(drawn) != boxes


def test_a_file_brings_the_characters_that_it_has(page: Page, tmp_path: Path) -> None:
    write_page(scene(), tmp_path / "map.html")
    page.goto((tmp_path / "map.html").as_uri())
    page.locator(".hm-map").wait_for()
    assert_written(page)


def test_the_cell_of_a_notebook_asks_its_kernel_for_the_font(page: Page) -> None:
    cell = Cell(page, scene())
    cell.quiet()
    cell.deliver_until("[...document.fonts].some(({ status }) => status === 'loaded')")
    assert_written(page)
    cell.close()
