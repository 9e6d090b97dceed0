"""The lesson for those who read it: widths, keys, languages."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.lesson.conftest import OpenLesson
from tests.browser.lesson.opened import assert_right, cell, state_of, type_number


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("locale", ["zh-CN", "en-US"])
def test_the_page_is_never_wider_than_the_window(
    open_lesson: OpenLesson, width: int, locale: str
) -> None:
    page = open_lesson(width=width, locale=locale)

    def is_too_wide() -> bool:
        return page.evaluate("document.documentElement.scrollWidth > innerWidth")

    assert not is_too_wide()
    cell(page, "weights", 1, 1).click()
    page.locator("[data-knob=knob_heads] [data-choice='4']").click()
    assert not is_too_wide()
    for frames in (10, 32):
        page.locator("[data-knob=length]").fill(str(frames))
        cell(page, "output", 1, 1).click()
        assert not is_too_wide()


def test_the_keyboard_does_all(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    reached: list[str] = []
    while "ls-code" not in reached:
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => { const at = document.activeElement;
                    return at.closest("[data-matrix]")?.dataset.matrix ?? at.dataset.knob
                        ?? (at.closest("[data-question]") ? "question" : at.className); }"""
            )
        )
    matrices = ["x", "input", "wq", "q", "wk", "k", "wv", "v", "scores", "scaled", "weights"]
    for name in [*matrices, "output", "scaled", "temperature", "valid", "causal", "length"]:
        assert name in reached, name
    # A matrix is one stop for the tabulator; arrows move in it.
    assert [reached.count(name) for name in ("x", "wq", "scores", "output")] == [1, 1, 1, 1]
    cell(page, "scores", 0, 0).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert state_of(page)["cell"] == {"matrix": "scores", "row": 1, "column": 1}
    expect(page.locator(".ls-bar")).to_contain_text("第 2 帧的提问")
    page.keyboard.press("Escape")
    expect(page.locator(".ls-bar")).to_be_hidden()
    cell(page, "x", 0, 0).locator("input").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.type("0.5")
    page.keyboard.press("ArrowLeft")
    page.keyboard.type("9")
    page.keyboard.press("Enter")
    assert state_of(page)["frames"][0][1] == 0.95
    assert state_of(page)["cell"] == {"matrix": "x", "row": 1, "column": 1}
    page.keyboard.press("ArrowUp")
    page.keyboard.type("7")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")
    assert state_of(page)["frames"][0][1] == 0.95
    assert_right(page)


def test_what_has_the_focus_is_not_covered(open_lesson: OpenLesson) -> None:
    page = open_lesson(width=360, height=740)
    for name in ("x", "scores", "weights", "output"):
        page.evaluate("window.scrollTo(0, 0)")
        cell(page, name, 1, 1).evaluate("e => (e.querySelector('input') ?? e).focus()")
        page.wait_for_timeout(50)
        place = cell(page, name, 1, 1).evaluate("e => e.getBoundingClientRect().toJSON()")
        bar = page.locator(".ls-bar").evaluate("e => e.getBoundingClientRect().toJSON()")
        top = page.locator(".ls-top").evaluate("e => e.getBoundingClientRect().toJSON()")
        assert top["bottom"] <= place["top"], name
        assert place["bottom"] <= bar["top"], name


@pytest.mark.parametrize("width", [360, 768])
def test_no_ends_of_lines_stand_beside_the_weights_that_stay(
    open_lesson: OpenLesson, width: int
) -> None:
    page = open_lesson(width=width)
    page.locator("[data-knob=causal]").scroll_into_view_if_needed()
    edges = page.evaluate(
        """() => [".ls-watch", ".ls-knob"].map((name) => {
            const { left, right } = document.querySelector(name).getBoundingClientRect();
            return [left, right];
        })"""
    )
    assert edges[0] == edges[1]


def test_both_languages_say_everything(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    tables = page.evaluate(
        """async () => ({
            en: (await import("/page/lesson_texts_en.js")).texts,
            zh: (await import("/page/lesson_texts_zh.js")).texts,
        })"""
    )
    assert list(tables["en"]) == list(tables["zh"])
    same = {name for name in tables["en"] if tables["en"][name] == tables["zh"][name]}
    signs = {*(f"symbol_{letter}" for letter in "xqkvo"), "across_width"}
    assert same == {*signs, "series_lstm", "series_gru", "code_text"}
    for name, english in tables["en"].items():
        chinese = tables["zh"][name]
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese)), name
        if name not in same:
            assert re.search(r"[\u4e00-\u9fff，]", chinese), name
            assert not re.search(r"[\u4e00-\u9fff]", english), name
    type_number(page, "x", 2, 2, "1.25")
    page.get_by_role("combobox").select_option("en")
    assert page.evaluate("document.documentElement.lang") == "en"
    expect(page.locator("h1")).to_have_text(tables["en"]["title"])
    text = page.locator(".ls-page").inner_text()
    assert not re.search(r"[\u4e00-\u9fff]", text)
    assert not re.search(r"\{\w+\}|undefined|NaN|\*\*|`", text)
    assert state_of(page)["frames"][2][2] == 1.25
    assert_right(page)


def test_a_browser_of_another_language_reads_chinese(open_lesson: OpenLesson) -> None:
    page = open_lesson(locale="de-DE")
    assert page.evaluate("document.documentElement.lang") == "zh"
    page = open_lesson(locale="en-GB")
    assert page.evaluate("document.documentElement.lang") == "en"


def test_the_address_keeps_the_language(open_lesson: OpenLesson) -> None:
    page = open_lesson(locale="zh-CN")
    page.get_by_role("combobox").select_option("en")
    page.reload()
    expect(page.locator("h1")).to_have_text("Self-attention: who should I look at?")
    assert page.evaluate("document.documentElement.lang") == "en"


def test_dark_and_light(open_lesson: OpenLesson) -> None:
    page = open_lesson(color_scheme="dark")
    ground = "getComputedStyle(document.querySelector('.ls')).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="明 / 暗").click()
    assert page.evaluate(ground) != dark


@pytest.mark.parametrize("width", [700, 1200])
def test_nothing_covers_the_text_on_paper(open_lesson: OpenLesson, width: int) -> None:
    page = open_lesson(width=width)
    cell(page, "scores", 1, 1).click()
    expect(page.locator(".ls-bar")).to_be_visible()
    page.emulate_media(media="print")
    stuck = page.evaluate(
        """() => [...document.querySelectorAll(".ls, .ls *")].filter((e) =>
            ["sticky", "fixed"].includes(getComputedStyle(e).position)
            && e.getBoundingClientRect().height > 0).map((e) => e.className)"""
    )
    assert stuck == []
    edges = page.evaluate(
        """() => [".ls-page", ".ls-bar"].flatMap((name) => {
            const { top, bottom } = document.querySelector(name).getBoundingClientRect();
            return [top, bottom];
        })"""
    )
    assert edges == sorted(edges)


def test_paper_is_light_and_keeps_its_shades(open_lesson: OpenLesson) -> None:
    page = open_lesson(color_scheme="dark")
    look = """() => {
        const style = getComputedStyle(document.querySelector(".ls"));
        const cell = getComputedStyle(document.querySelector("[data-matrix=weights] .ls-cell"));
        return [style.color, style.printColorAdjust, cell.color];
    }"""
    on_screen = page.evaluate(look)
    page.emulate_media(media="print", color_scheme="dark")
    color, adjust, cell_color = page.evaluate(look)
    assert color == cell_color == "rgb(28, 33, 40)" != on_screen[0]
    assert adjust == "exact"
    assert not page.locator("details, button.hm-small").filter(visible=True).count()


def test_no_blank_follows_a_full_width_bracket(open_lesson: OpenLesson) -> None:
    text = open_lesson().locator("[data-example=sentence]").inner_text()
    assert re.search(r"（汇点）\d+ 个", text)
    assert "） " not in text


def test_what_is_walked_to_does_not_lie_behind_the_bar(open_lesson: OpenLesson) -> None:
    page = open_lesson()

    def room_and_height() -> list[float]:
        return page.evaluate(
            """() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(() => resolve([
                parseFloat(getComputedStyle(document.documentElement).scrollPaddingBottom),
                document.querySelector(".ls-bar").offsetHeight]))))"""
        )

    heights = []
    for name in ("output", "x"):
        cell(page, name, 0, 0).click()
        room, height = room_and_height()
        assert room == height + 12
        heights.append(height)
    assert min(heights) > 40
    page.keyboard.press("Escape")
    assert room_and_height() == [12, 0]
