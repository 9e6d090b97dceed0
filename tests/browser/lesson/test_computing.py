"""Every number of the lesson is that of PyTorch, whatever is changed."""

import random
import re

import pytest
import torch
from playwright.sync_api import Page, expect

from heedmap.nn import SelfAttention
from tests.browser.lesson.beside_pytorch import (
    NUMBERS,
    READ,
    Knobs,
    assert_shown,
    assert_written,
    exact,
    expected,
    values_of,
)
from tests.browser.lesson.conftest import OpenLesson
from tests.browser.lesson.opened import assert_right, cell, state_of, type_number


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


@pytest.mark.parametrize("width", [360, 1200])
def test_the_largest_numbers_fit_their_cells(open_lesson: OpenLesson, width: int) -> None:
    page = open_lesson(width=width)
    page.evaluate(
        """() => {
            const { store } = document.getElementById("heedmap").lesson;
            const number = (i, j) => ((i + j) % 3 ? -10 : 9.999);
            const all = (rows) => rows.map((row, i) => row.map((_, j) => number(i, j)));
            const { frames, wq, wk, wv } = store.state;
            store.set({ frames: all(frames), wq: all(wq), wk: all(wk), wv: all(wv) });
        }"""
    )
    assert_right(page)
    cut = page.evaluate(
        """() => [...document.querySelectorAll(".ls-cell, .ls-cell input")]
            .filter((e) => e.scrollWidth > e.clientWidth)
            .map((e) => e.value ?? e.textContent)"""
    )
    assert cut == []


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
