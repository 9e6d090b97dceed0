"""The live map where there is no server: in one file, and in the cell of a notebook."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page

import heedmap
from heedmap import AttentionMap
from heedmap.explore import offline
from heedmap.explore.offline import write_page
from heedmap.explore.opening import scene_of_map
from tests.browser.cell import HANDLE, Cell
from tests.browser.conftest import PATIENCE_SECONDS
from tests.browser.scenes import sound_scene, text_scene

Faults = list[str]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Return a page without a network, in which nothing may go wrong."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    opened, faults = context.new_page(), []
    opened.on(
        "console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None
    )
    opened.on("pageerror", lambda error: faults.append(str(error)))
    yield opened
    context.close()
    assert faults == []


def view(page: Page, call: str) -> Any:
    return page.evaluate(f"document.getElementById('heedmap').heedmap.{call}")


def until(page: Page, condition: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"{condition} does not come true"
        page.wait_for_timeout(20)


def open_file(page: Page, file: Path) -> None:
    page.goto(file.as_uri())
    until(page, "document.getElementById('heedmap')?.heedmap !== undefined")
    view(page, "whenQuiet()")


def test_a_text_in_a_file(page: Page, tmp_path: Path) -> None:
    scene = text_scene()
    write_page(scene, tmp_path / "map.html")
    open_file(page, tmp_path / "map.html")
    weights = scene.layers[0].weights[0].to_dense()
    page.mouse.click(*view(page, "placeOf(2, 5)"))
    view(page, "whenQuiet()")
    assert (view(page, "state()")["query"], view(page, "state()")["key"]) == (2, 5)
    # Half precision keeps three digits of it.
    assert f"{float(weights[2, 5]):.2g}"[:4] in page.inner_text("#heedmap")
    best = int(weights[2].argmax())
    first = page.inner_text(".hm-ranked-query li >> nth=0")
    assert scene.axes[0].labels[best] in first
    view(page, "set({ layer: 1, head: 2, statistic: 'max' })")
    view(page, "whenQuiet()")
    assert view(page, "state()")["layer"] == 1


def test_a_sound_in_a_file_can_be_heard(page: Page, tmp_path: Path) -> None:
    write_page(sound_scene(tmp_path), tmp_path / "map.html")
    open_file(page, tmp_path / "map.html")
    until(page, "document.querySelector('audio')?.duration > 1")
    view(page, "set({ query: 100 })")
    until(page, "document.querySelector('audio').currentTime > 4")


def test_a_long_map_in_a_file_says_how_coarse_it_is(page: Page, tmp_path: Path) -> None:
    weights = AttentionMap.from_factors(*torch.randn(2, 3000, 4))
    write_page(scene_of_map(weights), tmp_path / "map.html")
    open_file(page, tmp_path / "map.html")
    assert "blocks of 8 × 8 weights" in page.inner_text("#heedmap")
    view(page, "set({ query: 1234 })")
    view(page, "whenQuiet()")
    assert page.locator(".hm-ranked-query li").count() == 8
    best = int(weights[1234].to_dense().argmax())
    view(page, f"set({{ key: {best} }})")
    view(page, "whenQuiet()")
    # Of the strongest the weight itself is known.
    shown = page.inner_text(".hm-weight")
    assert float(shown) == pytest.approx(float(weights[1234, best].to_dense()), rel=6e-3)


def test_a_mean_of_a_block_is_never_shown_as_a_weight(page: Page, tmp_path: Path) -> None:
    weights = AttentionMap.from_factors(*torch.randn(2, 3000, 4))
    write_page(scene_of_map(weights), tmp_path / "map.html")
    open_file(page, tmp_path / "map.html")
    weakest = int(weights[1234].to_dense().argmin())
    view(
        page,
        f"set({{ view: {{ x: {weakest}, y: 1234, zoom: 14 }}, query: 1234, key: {weakest},"
        " block: { rows: [8, 9], columns: [3, 5] } })",
    )
    view(page, "whenQuiet()")
    top, left = 1234 // 8 * 8, weakest // 8 * 8
    mean = float(weights[top : top + 8, left : left + 8].to_dense().mean())
    known, said = page.inner_text(".hm-weight").replace("−", "-").split(": ")
    assert known == "mean of 8 × 8 weights"
    assert float(said) == pytest.approx(mean, rel=6e-3)
    assert page.inner_text(".hm-notice") == "This file holds blocks of 8 × 8 weights"
    assert "so there are no sums" in page.inner_text(".hm-block")
    page.mouse.move(*view(page, f"placeOf(1234, {weakest})"))
    view(page, "whenQuiet()")
    assert "mean of 8 × 8 weights" in page.inner_text(".hm-tip")
    view(page, "set({ language: 'zh' })")
    view(page, "whenQuiet()")
    assert "8 × 8 个权重的均值" in page.inner_text(".hm-weight")


def test_blocks_larger_than_pixels_of_zoom_0_are_not_exact(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "OTHER_PIXELS", 250)
    weights = heedmap.attention(*torch.randn(3, 2, 300, 8))[1]
    write_page(scene_of_map(weights), tmp_path / "map.html")
    open_file(page, tmp_path / "map.html")
    assert view(page, "state()")["exact"] is True
    view(page, "set({ head: 1, statistic: 'sum', query: 299, key: 299 })")
    view(page, "whenQuiet()")
    assert view(page, "state()")["exact"] is False
    corner = weights[1, 288:, 288:].to_dense()
    known, said = page.inner_text(".hm-weight").replace("−", "-").split(": ")
    assert known == "mean of 12 × 12 weights"
    assert float(said) == pytest.approx(float(corner.mean()), rel=6e-3)
    assert page.inner_text(".hm-notice") == "This file holds blocks of 32 × 32 weights"
    sizes = page.evaluate(
        "[...document.querySelectorAll('.hm-thumbnail canvas')].map(({ width }) => width)"
    )
    assert sizes == [19, 10]


def test_a_cell_of_a_notebook(page: Page) -> None:
    weights = heedmap.attention(*torch.randn(3, 2, 300, 8))[1]
    cell = Cell(page, scene_of_map(weights))
    cell.quiet()
    page.evaluate(f"void {HANDLE}.set({{ query: 7, key: 9 }})")
    cell.deliver_until("document.querySelectorAll('.hm-ranked-query li').length > 3")
    shown = page.inner_text(".hm-ranked-query li >> nth=0")
    assert str(int(weights[0, 7].argmax())) in shown
    # Left while tiles and rows are asked for: nobody waits for them any more, and nothing is wrong.
    page.evaluate(f"void {HANDLE}.set({{ head: 1, query: 8 }})")
    page.wait_for_timeout(300)
    assert cell.has_answers
    page.evaluate("window.leave()")
    assert page.evaluate("document.getElementById('heedmap').childElementCount") == 0
    cell.close()
