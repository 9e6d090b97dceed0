"""The lesson as one file, from disk, without a program and without a network."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from heedmap.lesson.offline import write_lesson
from tests.browser.conftest import PATIENCE_SECONDS, WATCH_POLICY
from tests.browser.lesson.beside_pytorch import READ, Knobs, assert_shown, expected


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Return a page without a network, on which nothing may go wrong."""
    context = browser.new_context(offline=True, locale="zh-CN")
    opened = context.new_page()
    opened.set_default_timeout(1000 * PATIENCE_SECONDS)
    faults: list[str] = []
    opened.on(
        "console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None
    )
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on(
        "request",
        lambda r: None if r.url.startswith(("file:", "blob:")) else faults.append(r.url),
    )
    opened.add_init_script(WATCH_POLICY)
    yield opened
    faults += opened.evaluate("window.violations")
    context.close()
    assert faults == []


def open_file(page: Page, folder: Path, **how: object) -> None:
    write_lesson(folder / "lesson.html", **how)  # pyright: ignore[reportArgumentType]
    page.goto((folder / "lesson.html").as_uri())
    page.locator("[data-matrix=output]").first.wait_for()


def test_every_number_is_there_and_can_be_changed(page: Page, tmp_path: Path) -> None:
    open_file(page, tmp_path)
    assert_shown(page.evaluate(READ), expected(Knobs(), 0))
    field = page.locator("[data-matrix=x] input").first
    field.fill("-1.5")
    field.press("Enter")
    page.locator("[data-knob=causal]").click()
    state = page.evaluate("document.getElementById('heedmap').lesson.store.state")
    assert state["frames"][0][0] == -1.5
    assert_shown(page.evaluate(READ), expected(Knobs.of(state), 0))
    page.get_by_role("button", name="听整段").click()
    page.locator(".ls-playing").wait_for()


def test_what_needs_the_program_is_said(page: Page, tmp_path: Path) -> None:
    open_file(page, tmp_path)
    for name in ("sentence", "voices", "film"):
        example = page.locator(f"[data-example={name}]")
        expect(example).to_contain_text("heedmap lesson")
    # One sentence was looked at before, and is carried along.
    sentence = page.locator("[data-example=sentence]")
    expect(sentence.locator(".ls-token.ls-special")).to_have_count(3)
    sentence.locator(".ls-token", has_text=re.compile("^他\\d")).click()
    expect(sentence.locator(".ls-said")).to_contain_text("“他”最看重“他说”")
    assert page.locator("form.ls-sentence-form").count() == 0


def test_it_begins_in_the_language_that_was_asked_for(page: Page, tmp_path: Path) -> None:
    open_file(page, tmp_path, language="en")
    expect(page.locator("h1")).to_have_text("Self-attention: who should I look at?")
    page.get_by_role("combobox").select_option("zh")
    expect(page.locator("h1")).to_have_text("自注意力：我该看谁？")
    page.reload()
    expect(page.locator("h1")).to_have_text("自注意力：我该看谁？")
