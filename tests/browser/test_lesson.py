"""The lesson in a browser: every number, every knob, both languages, all widths, no network."""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from heedmap.explore.running import Running
from heedmap.lesson.app import make_app
from heedmap.lesson.examples import Examples
from heedmap.nn import SelfAttention
from tests.browser.conftest import PATIENCE_SECONDS, WATCH_POLICY
from tests.browser.lesson import (
    NUMBERS,
    READ,
    Knobs,
    assert_shown,
    assert_written,
    exact,
    expected,
    values_of,
)

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


def test_the_first_numbers_are_those_of_pytorch(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    assert_shown(page.evaluate(READ), expected(Knobs(), 0))
    # And those that a learner gets, in single precision.
    torch.manual_seed(42)
    x = torch.randn(2, 5, 4)
    output, weights = SelfAttention(4, 8)(x)
    shown = page.evaluate(READ)
    for name, wanted in (("weights", weights[0].to_dense()), ("output", output[0])):
        values = values_of(shown, name).float()
        torch.testing.assert_close(values, wanted.detach(), rtol=0, atol=1e-6)


def test_twenty_edits_of_inputs_and_knobs(open_lesson: OpenLesson) -> None:
    page, chance = open_lesson(), random.Random(0)
    done = set()
    for number in range(20):
        turned = EDITS[number % len(EDITS)]
        turned(page, chance)
        done.add(turned.__name__)
        assert_right(page)
    assert len(done) == len(EDITS)


def edit_x(page: Page, chance: random.Random) -> None:
    rows = len(state_of(page)["frames"])
    type_number(page, "x", chance.randrange(rows), chance.randrange(4), number_text(chance))


def edit_parameter(page: Page, chance: random.Random) -> None:
    name = chance.choice(["wq", "wk", "wv"])
    type_number(page, name, chance.randrange(4), chance.randrange(8), number_text(chance))


def number_text(chance: random.Random) -> str:
    return chance.choice(["{:.3f}", "{:.1f}", "{:+.2e}"]).format(chance.uniform(-3, 3))


def turn_scale(page: Page, _: random.Random) -> None:
    page.locator("[data-knob=scaled]").click()


def turn_temperature(page: Page, chance: random.Random) -> None:
    slider = page.locator("[data-knob=temperature]")
    slider.fill(str(round(chance.uniform(-0.7, 0.7), 2)))


def turn_padding(page: Page, chance: random.Random) -> None:
    boxes = page.locator("[data-knob=valid]")
    boxes.nth(chance.randrange(boxes.count())).click()


def turn_causal(page: Page, _: random.Random) -> None:
    page.locator("[data-knob=causal]").click()


def turn_heads(page: Page, chance: random.Random) -> None:
    count = chance.choice([2, 4])
    page.locator(f"[data-knob=knob_heads] [data-choice='{count}']").click()
    page.locator(f"[data-knob=which_head] [data-choice='{count}']").first.click()
    assert state_of(page)["head"] == count - 1


def shuffle(page: Page, _: random.Random) -> None:
    page.locator(".ls-knob button", has_text=re.compile("打乱各帧|Shuffle")).click()


def turn_positions(page: Page, _: random.Random) -> None:
    page.locator("[data-knob=positions]").click()


def lengthen(page: Page, chance: random.Random) -> None:
    page.locator("[data-knob=length]").fill(str(chance.choice([3, 9, 14, 32])))


EDITS = [
    edit_x,
    turn_scale,
    edit_parameter,
    turn_padding,
    turn_heads,
    turn_causal,
    shuffle,
    turn_temperature,
    turn_positions,
    lengthen,
]


def test_every_number_says_how_it_came_about(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    page.locator("[data-knob=valid]").nth(3).click()
    wanted = expected(Knobs.of(state_of(page)), 0)
    for name, tensor in wanted.items():
        for row, column in ((0, 1), (3, 3)):
            cell(page, name, row, column).hover()
            value = float(tensor[row, column])
            result = page.locator(".ls-bar [data-result]")
            assert float(result.get_attribute("data-result") or "") == pytest.approx(
                value, abs=1e-6
            )
            assert_written(float(result.get_attribute("data-result") or ""), result.inner_text())
    # The terms are those of the two vectors, and sum to the number.
    cell(page, "scores", 1, 2).hover()
    rows = page.locator(".ls-terms tr").all_inner_texts()
    lines = [[float(t) for t in re.findall(r"-?\d+\.\d+", r.replace("−", "-"))] for r in rows]
    q, k = wanted["q"][1], wanted["k"][2]
    assert lines[1] == pytest.approx(q.tolist(), abs=6e-5)
    assert lines[2] == pytest.approx(k.tolist(), abs=6e-5)
    assert lines[3] == pytest.approx([*(q * k).tolist(), float(q @ k)], abs=6e-5)
    sources = page.locator("[data-matrix=q] .ls-source")
    assert sources.count() == 8
    assert {s.get_attribute("data-row") for s in sources.all()} == {"1"}


def test_padding_gets_exactly_nothing(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    page.locator("[data-knob=valid]").nth(3).click()
    for row in range(5):
        hidden = cell(page, "weights", row, 3)
        assert hidden.get_attribute("data-value") == "0"
        assert hidden.inner_text() == "0"
    page.locator("[data-knob=causal]").click()
    for box in range(5):
        page.locator("[data-knob=valid]").nth(box).set_checked(False)
    assert_right(page)
    cell(page, "weights", 0, 0).hover()
    expect(page.locator(".ls-bar")).to_contain_text("谁也看不见")


def test_the_second_sound_has_its_padding(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    page.locator("[data-knob=knob_sound] [data-choice='2']").click()
    assert state_of(page)["valid"] == [True, True, True, False, False]
    assert state_of(page)["frames"] == NUMBERS["sounds"][1]
    assert_right(page)


def test_shuffled_frames_take_their_output_along_until_they_have_positions(
    open_lesson: OpenLesson,
) -> None:
    page = open_lesson()
    before = values_of(page.evaluate(READ), "output")
    shuffle(page, random.Random())
    order = state_of(page)["order"]
    assert order != [0, 1, 2, 3, 4]
    after = values_of(page.evaluate(READ), "output")
    torch.testing.assert_close(after, before[order], rtol=0, atol=1e-12)
    moved = page.locator("[data-knob=moved]")
    expect(moved).to_contain_text("一模一样")
    turn_positions(page, random.Random())
    expect(moved).to_contain_text("次序有了意义")


def test_what_is_no_number_is_refused(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    for text in ("", "abc", "11", "-1e9", "NaN", "Infinity", "0x10", "1,000.5"):
        type_number(page, "x", 0, 0, text)
        expect(page.locator(".hm-toast")).to_be_visible()
        assert state_of(page)["frames"] == NUMBERS["sounds"][0]
    for text, value in (("−2.5", -2.5), ("1,5", 1.5), (" 3 ", 3), ("-10", -10)):
        type_number(page, "x", 0, 0, text)
        assert state_of(page)["frames"][0][0] == value
    assert_right(page)


def test_large_numbers_stay_numbers(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    page.locator("[data-knob=scaled]").click()
    for row in range(5):
        type_number(page, "x", row, 0, "10")
    for column in range(8):
        for name in ("wq", "wk"):
            type_number(page, name, 0, column, "10")
    assert_right(page)
    page.locator(".ls-restart").click()
    assert_shown(page.evaluate(READ), expected(Knobs(), 0))
    expect(page.locator(".ls-restart")).to_be_hidden()


def test_the_sound_has_the_features(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    found = page.evaluate(
        """async () => {
            const tones = await import("/page/lesson_tones.js");
            const x = document.getElementById("heedmap").lesson.numbers().x;
            const { samples, middle } = tones.synthesised(x);
            return { samples: [...samples], middle, rate: tones.RATE_HZ, hertz: tones.TONES_HZ };
        }"""
    )
    assert found["rate"] == 24_000
    # Another way to measure: the amplitudes of a Fourier transform of each frame.
    samples = exact(found["samples"]).reshape(5, -1)
    amplitudes = torch.fft.rfft(samples).abs() * 2 / samples.shape[1]
    hertz_per_bin = found["rate"] / samples.shape[1]
    bins = [round(hertz / hertz_per_bin) for hertz in found["hertz"]]
    features = (amplitudes[:, bins] / found["middle"]).log2()
    wanted = exact(NUMBERS["sounds"][0])
    torch.testing.assert_close(features, wanted, rtol=0, atol=1e-5)
    page.get_by_role("button", name="听整段").click()
    page.locator(".ls-playing").wait_for()


def test_answers_are_checked(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    answers = {
        "frames": "4",
        "projection": 1,
        "scores": 1,
        "scale": 2,
        "budget": f"{expected(Knobs(), 0)['weights'][1, 4]:.2f}",
        "looks": "2",
        "padding": "0",
        "shuffle": 1,
        "length": "100",
    }
    forms = page.locator("[data-question]")
    assert sorted(f.get_attribute("data-question") or "" for f in forms.all()) == sorted(answers)
    for name, answer in answers.items():
        form = page.locator(f"[data-question={name}]")
        form.get_by_role("button").click()
        expect(form).to_have_attribute("data-verdict", "verdict_none")
        if isinstance(answer, int):
            wrong = form.locator("input").nth((answer + 1) % form.locator("input").count())
            wrong.check()
        else:
            form.locator("input").fill("77")
        form.get_by_role("button").click()
        expect(form).to_have_attribute("data-verdict", "verdict_wrong")
        if isinstance(answer, int):
            form.locator("input").nth(answer).check()
        else:
            form.locator("input").fill(answer)
        form.get_by_role("button").click()
        expect(form).to_have_attribute("data-verdict", "verdict_right")


def test_the_question_of_the_scale_is_answered_by_the_numbers(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    reading = page.locator("[data-reading=reading_largest]")
    before = float(reading.get_attribute("data-value") or "")
    page.locator("[data-knob=scaled]").click()
    assert float(reading.get_attribute("data-value") or "") > before + 0.1


def test_one_frame_and_its_row(open_lesson: OpenLesson) -> None:
    page = open_lesson()
    page.locator(".ls-gaze-frame").nth(3).click()
    weights = expected(Knobs(), 0)["weights"][3]
    shown = [
        float(f.get_attribute("data-value") or "") for f in page.locator(".ls-gaze-frame").all()
    ]
    assert shown == pytest.approx(weights.tolist(), abs=1e-6)
    expect(page.locator(".ls-gaze .ls-said")).to_contain_text("第 4 帧最看重自己，占 27.5 %")


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
    assert same == {*(f"symbol_{letter}" for letter in "xqkvo"), "code_text"}
    for name, english in tables["en"].items():
        chinese = tables["zh"][name]
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese)), name
        if name not in same:
            assert re.search(r"[\u4e00-\u9fff]", chinese), name
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


def test_dark_and_light(open_lesson: OpenLesson) -> None:
    page = open_lesson(color_scheme="dark")
    ground = "getComputedStyle(document.querySelector('.ls')).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="明 / 暗").click()
    assert page.evaluate(ground) != dark
