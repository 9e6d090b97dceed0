"""The small questions of the lesson, answered by what the page shows."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.lesson.conftest import OpenLesson
from tests.browser.lesson.opened import state_of, type_number


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


def test_where_nobody_is_seen_nothing_is_asked(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    boxes = page.locator("[data-knob=valid]")
    for box in boxes.all():
        box.set_checked(False)
    expect(page.locator(".ls-gaze .ls-said")).to_contain_text("第 1 帧谁也看不见")
    for name, frame in (("budget", 2), ("looks", 1)):
        form = page.locator(f"[data-question={name}]")
        expect(form.locator(".ls-ask")).to_contain_text(f"第 {frame} 帧现在谁也看不见，整行是 0")
        expect(form.locator("input")).to_be_hidden()
        expect(form.get_by_role("button")).to_be_hidden()
    boxes.nth(2).set_checked(True)
    expect(page.locator(".ls-gaze .ls-said")).to_contain_text("第 1 帧最看重第 3 帧，占 100.0 %")
    assert answer(page, "budget", "0") == "verdict_right"
    assert answer(page, "looks", "3") == "verdict_right"


def test_numbers_may_be_wide_and_shares_percentages(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    assert answer(page, "frames", "４") == "verdict_right"
    assert answer(page, "frames", "４．０") == "verdict_right"
    assert answer(page, "frames", "400 %") == "verdict_none"
    assert answer(page, "padding", "０％") == "verdict_right"
    shown = page.locator("[data-question=budget] .ls-ask").inner_text()
    left = 1 - sum(float(number) for number in re.findall(r"\d\.\d\d", shown))
    wide = {ord(narrow): ord(narrow) + 0xFEE0 for narrow in "0123456789.%"}
    percentages = (
        f"{100 * left:.0f}%",
        f" {100 * left:.0f} % ",
        f"{100 * left:.0f}%".translate(wide),
    )
    for text in (f"{left:.2f}".translate(wide), *percentages):
        assert answer(page, "budget", text) == "verdict_right", text
    for text in ("%", "20 %%", "百分之二十"):
        assert answer(page, "budget", text) == "verdict_none", text
    type_number(page, "x", 0, 0, "－１．５")
    assert state_of(page)["frames"][0][0] == -1.5
