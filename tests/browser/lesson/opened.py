"""What the tests of an opened lesson do with it."""

from typing import Any

from playwright.sync_api import Page

from tests.browser.lesson.beside_pytorch import READ, Knobs, assert_shown, expected


def state_of(page: Page) -> dict[str, Any]:
    return page.evaluate("document.getElementById('heedmap').lesson.store.state")


def assert_right(page: Page) -> None:
    state = state_of(page)
    assert_shown(page.evaluate(READ), expected(Knobs.of(state), state["head"]))


def cell(page: Page, matrix: str, row: int, column: int) -> Any:
    return page.locator(f"[data-matrix={matrix}] [data-row='{row}'][data-column='{column}']").first


def type_number(page: Page, matrix: str, row: int, column: int, text: str) -> None:
    field = cell(page, matrix, row, column).locator("input")
    field.focus()
    field.fill(text)
    field.press("Enter")
