"""The small questions of the lesson, answered by what the page shows."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.lesson.conftest import OpenLesson


def answer(page: Page, name: str, text: str) -> str | None:
    """Return what the page says to an answer."""
    form = page.locator(f"[data-question={name}]")
    form.locator("input").fill(text)
    form.get_by_role("button").click()
    return form.get_attribute("data-verdict")


@pytest.mark.parametrize("locale", ["zh-CN", "en-US"])
def test_the_last_weight_is_what_the_shown_numbers_leave(
    open_lesson: OpenLesson, locale: str
) -> None:
    page = open_lesson(locale=locale)
    for frames in range(2, 33):
        page.locator("[data-knob=length]").fill(str(frames))
        asked = page.locator("[data-question=budget] .ls-ask").inner_text()
        shown = [float(number) for number in re.findall(r"\d\.\d\d", asked)]
        assert len(shown) == (frames - 1 if frames <= 9 else 1)
        left = 1 - sum(shown)
        assert answer(page, "budget", f"{left:.2f}") == "verdict_right", frames
        assert answer(page, "budget", f"{left + 0.1:.2f}") == "verdict_wrong", frames
