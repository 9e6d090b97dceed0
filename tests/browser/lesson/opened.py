"""What the tests of an opened lesson do with it."""

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.lesson.beside_pytorch import READ, TOLERANCE, Knobs, assert_shown, expected

MOST_BUTTONS = 12
"""Longer sequences have a slider in the place of a button for each frame."""


def state_of(page: Page) -> dict[str, Any]:
    return page.evaluate("document.getElementById('heedmap').lesson.store.state")


def assert_right(page: Page) -> None:
    """Fail unless every number on the page is that of PyTorch."""
    state = state_of(page)
    wanted = expected(Knobs.of(state), state["head"])
    assert_shown(page.evaluate(READ), wanted)
    weights = wanted["weights"]
    frames = page.locator(".ls-gaze-frame").all()
    shown = [float(frame.get_attribute("data-value") or "") for frame in frames]
    if len(weights) <= MOST_BUTTONS:
        assert shown == pytest.approx(weights[state["chosen"]].tolist(), abs=TOLERANCE)
    rows = weights[weights.sum(-1) > 0]
    entropies = -(rows * rows.clamp_min(1e-300).log()).sum(-1)
    readings = {
        "reading_largest": float(rows.amax(-1).mean()) if len(rows) else 0.0,
        "reading_spread": float(entropies.exp().mean()) if len(rows) else 0.0,
        "reading_zeros": int((weights == 0).sum()),
    }
    for name, value in readings.items():
        told = page.locator(f"[data-reading={name}]").get_attribute("data-value")
        assert float(told or "") == pytest.approx(value, abs=TOLERANCE), name


def cell(page: Page, matrix: str, row: int, column: int) -> Any:
    return page.locator(f"[data-matrix={matrix}] [data-row='{row}'][data-column='{column}']").first


def type_number(page: Page, matrix: str, row: int, column: int, text: str) -> None:
    field = cell(page, matrix, row, column).locator("input")
    field.focus()
    field.fill(text)
    field.press("Enter")
