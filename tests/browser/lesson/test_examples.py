"""The real examples of the lesson, with small maps in the place of models."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from heedmap.errors import FetchError
from heedmap.explore.running import Running
from heedmap.explore.scene import Scene
from heedmap.lesson import sentences, timelines
from heedmap.lesson.app import make_app
from heedmap.lesson.examples import MOST_SENTENCES, Examples
from heedmap.lesson.page_files import PAGE
from heedmap.lesson.timelines import Part, Timeline, cut_timeline
from tests.browser.conftest import PATIENCE_SECONDS, WATCH_POLICY
from tests.browser.scenes import sound_scene, text_scene
from tests.lesson.small_film import ORDER, small_film


def small_sentence(text: str, _: Any = None) -> tuple[dict[str, Any], Scene]:
    """Return a kept sentence as if it were that of `text`."""
    if text == "offline":
        raise FetchError("the model must be fetched first; got no network. Try again.")
    kept = json.loads((PAGE / "sentences.json").read_text())["en"]
    return kept | {"text": text}, text_scene()


@pytest.fixture
def page(browser: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Page]:
    """Return the lesson, in English, whose examples need no model."""
    monkeypatch.setattr(sentences, "look_at", small_sentence)
    scene = sound_scene(tmp_path)
    parts = (Part(0.0, 6.0, "A"), Part(6.0, 15.0, "B"))
    monkeypatch.setattr(timelines, "voices", lambda _: Timeline(scene, parts, 200))
    film = cut_timeline(small_film(tmp_path / "film.mp4"), ORDER)
    monkeypatch.setattr(timelines, "film", lambda _: film)
    faults: list[str] = []
    with Running(Examples(), make=make_app) as running:
        context = browser.new_context(viewport={"width": 1200, "height": 900}, locale="en-US")
        opened = context.new_page()
        opened.set_default_timeout(1000 * PATIENCE_SECONDS)
        opened.add_init_script(WATCH_POLICY)
        opened.on("pageerror", lambda error: faults.append(str(error)))
        opened.goto(running.url)
        opened.locator("#examples").wait_for()
        yield opened
        faults += opened.evaluate("window.violations")
        context.close()
    assert faults == []


def test_a_sentence_that_somebody_types(page: Page) -> None:
    example = page.locator("[data-example=sentence]")
    example.get_by_role("textbox").fill("a cat is a cat")
    example.get_by_role("button", name="Look", exact=True).click()
    whole = example.get_by_role("button", name="The whole map")
    whole.click()
    page.locator(".ls-whole-map .hm-map").wait_for()
    # The map beneath is a live one: what is clicked in it is asked of its own scene.
    page.get_by_role("button", name="Layer 1, head 2").click()
    expect(page.locator(".ls-whole-map .hm-thumbnail[aria-pressed=true]")).to_have_count(1)
    example.locator(".ls-choose-head button").nth(2).click()
    example.locator(".ls-token").nth(3).click()
    kept = json.loads((PAGE / "sentences.json").read_text())["en"]
    row = kept["heads"][2]["weights"][3]
    shown = [float(t.get_attribute("data-value") or "") for t in example.locator(".ls-token").all()]
    assert shown == row


def test_another_language_keeps_the_sentence(page: Page) -> None:
    languages = page.get_by_role("combobox")
    field = page.locator("[data-example=sentence]").get_by_role("textbox")
    languages.select_option("zh")
    expect(field).to_have_value(sentences.FIRST["zh"])
    field.fill("a cat is a cat")
    page.get_by_role("button", name="看一看").click()
    expect(page.get_by_role("button", name="展开所有层")).to_be_visible()
    tokens = page.locator(".ls-token .ls-word").all_inner_texts()
    field.fill("a dog")
    languages.select_option("en")
    expect(field).to_have_value("a dog")
    assert page.locator(".ls-token .ls-word").all_inner_texts() == tokens
    expect(page.get_by_role("button", name="The whole map")).to_be_visible()


@pytest.mark.parametrize(("text", "size"), [("", 0), ("   ", 0), ("\u3000", 0), ("字" * 121, 121)])
def test_a_sentence_of_no_length_or_too_much_is_not_sent(page: Page, text: str, size: int) -> None:
    with page.expect_event("request", lambda request: request.url.endswith("/icon.svg")):
        # The address says the language, and for a new address the browser asks for the icon.
        page.get_by_role("combobox").select_option("zh")
    example = page.locator("[data-example=sentence]")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    example.get_by_role("textbox").fill(text)
    example.get_by_role("button", name="看一看").click()
    words = f"请输入 1 到 120 个字符的一句话；现在是 {size} 个。"
    expect(example.locator(".ls-trouble")).to_have_text(words)
    example.get_by_role("textbox").fill("  " + "字" * 120 + "\u3000")
    assert sent == []
    example.get_by_role("button", name="看一看").click()
    expect(example.get_by_role("button", name="展开所有层")).to_be_visible()
    expect(example.get_by_text(words)).to_have_count(0)


def test_what_goes_wrong_is_said(page: Page) -> None:
    example = page.locator("[data-example=sentence]")
    example.get_by_role("textbox").fill("offline")
    example.get_by_role("button", name="Look", exact=True).click()
    told = example.locator(".ls-trouble")
    expect(told).to_have_text("the model must be fetched first; got no network. Try again.")
    expect(example.locator(".ls-token")).not_to_have_count(0)


def test_a_recording_and_its_moments(page: Page) -> None:
    example = page.locator("[data-example=voices]")
    example.get_by_role("button", name="Open the recording").click()
    expect(example.locator(".ls-said")).to_contain_text("At 10.03 s (speaker B)")
    shares = [
        float(s.get_attribute("data-value") or "") for s in example.locator("[data-share]").all()
    ]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    slider = example.get_by_role("slider", name="Choose a moment")
    slider.fill("20")
    expect(example.locator(".ls-said")).to_contain_text("At 1.02 s (speaker A)")
    page.wait_for_function("document.querySelector('audio').currentTime < 2")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(example.locator(".ls-said")).to_contain_text("At 1.08 s")


def test_a_film_whose_shot_returns(page: Page) -> None:
    example = page.locator("[data-example=film]")
    example.get_by_role("button", name="Open the film").click()
    expect(example.locator(".ls-said")).to_contain_text("At 2.22 s (shot A)")
    expect(example.locator(".ls-legend li")).to_have_text(["shot A", "shot B", "shot C"])
    shares = {
        share.get_attribute("data-share"): float(share.get_attribute("data-value") or "")
        for share in example.locator("[data-share]").all()
    }
    assert shares["A"] > 0.8
    # Beside it stands the frame that it looks at most elsewhere: in the same shot, the time before.
    seconds = page.evaluate(
        """() => [...document.querySelectorAll("[data-example=film] video")]
            .map(({ currentTime }) => currentTime)"""
    )
    assert seconds[0] == pytest.approx(2.22)
    assert 0 < seconds[1] < 0.4 or 0.8 < seconds[1] < 1.2


def test_another_language_keeps_what_is_open(page: Page) -> None:
    page.locator("[data-example=film]").get_by_role("button", name="Open the film").click()
    expect(page.locator("[data-example=film] .ls-said")).to_contain_text("At 2.22 s (shot A)")
    page.get_by_role("combobox").select_option("zh")
    expect(page.locator("[data-example=film] .ls-said")).to_contain_text("在 2.22 秒（镜头 A）")
    expect(page.get_by_role("button", name="打开影片")).to_be_hidden()
    expect(page.get_by_role("button", name="打开录音")).to_be_visible()


def test_a_moment_that_does_not_come_is_asked_for_again(page: Page) -> None:
    example = page.locator("[data-example=film]")
    example.get_by_role("button", name="Open the film").click()
    expect(example.locator(".ls-said")).to_contain_text("At 2.22 s")
    page.route("**/rows/*", lambda route: route.abort())
    slider = example.get_by_role("slider", name="Choose a moment")
    slider.fill("3")
    expect(example.get_by_text("heedmap does not answer. Is it still running?")).to_be_visible()
    page.unroute("**/rows/*")
    slider.dispatch_event("input")
    expect(example.locator(".ls-said")).to_contain_text("At 0.14 s")
    expect(example.get_by_text("heedmap does not answer.")).to_have_count(0)


def test_of_one_token_the_row_is_its_own(page: Page) -> None:
    kept = json.loads((PAGE / "sentences.json").read_text())["en"]
    tokens = [("<s>", 0, 0), ("a", 0, 1), ("</s>", 1, 1)]
    weights = [[1.0, 0.0, 0.0]] * 3
    one = kept | {
        "tokens": [dict(zip(("text", "start", "stop"), token, strict=True)) for token in tokens],
        "heads": [{"layer": 0, "head": 2, "kind": "previous token", "weights": weights}],
    }
    page.route("**/sentences", lambda route: route.fulfill(json=one))
    example = page.locator("[data-example=sentence]")
    example.get_by_role("button", name="Look", exact=True).click()
    expect(example.locator(".ls-said")).to_contain_text("“a” looks most at “<s>”, with 100.0 %.")


def test_the_colours_of_the_parts_are_named(page: Page) -> None:
    example = page.locator("[data-example=voices]")
    example.get_by_role("button", name="Open the recording").click()
    expect(example.locator(".ls-legend li")).to_have_text(["speaker A", "speaker B"])
    example.locator("rect.ls-part-2").wait_for()
    grounds, fills = page.evaluate(
        """() => ["i", "rect"].map((tag) => [1, 2].map((part) => {
            const style = getComputedStyle(document.querySelector(`${tag}.ls-part-${part}`));
            return tag === "i" ? style.backgroundColor : style.fill;
        }))"""
    )
    assert grounds == fills
    assert fills[0] != fills[1]


def test_the_oldest_map_of_a_sentence_is_closed_for_the_newest(page: Page) -> None:
    def status(path: str) -> int:
        return page.evaluate("async (path) => (await fetch(path)).status", path)

    example = page.locator("[data-example=voices]")
    example.get_by_role("button", name="Open the recording").click()
    expect(example.locator(".ls-said")).to_contain_text("At 10.03 s")
    page.locator("[data-example=sentence]").get_by_role("button", name="Look", exact=True).click()
    sentence = page.locator("[data-example=sentence]").get_by_role("button", name="The whole map")
    sentence.wait_for()
    for number in range(MOST_SENTENCES):
        answer = page.evaluate(
            """async (text) => (await (await fetch("/sentences", { method: "POST",
                body: JSON.stringify({ text }) })).json()).scene""",
            f"sentence {number}",
        )
        assert answer == number + 3
    assert status("/scenes/2/description") == 404
    assert status("/scenes/3/description") == 200
    assert status(f"/scenes/{MOST_SENTENCES + 2}/description") == 200
    sentence.click()
    told = page.locator("[data-example=sentence] .ls-trouble")
    expect(told).to_contain_text("This map has been closed. For a sentence, press “Look” again")
    expect(page.locator("[data-example=sentence] .ls-whole-map")).to_be_hidden()
    # Recordings and films are few, and stay.
    example.get_by_role("button", name="The whole map").click()
    example.locator(".ls-whole-map .hm-map").wait_for()


def test_an_open_map_says_that_it_was_closed(page: Page) -> None:
    example = page.locator("[data-example=sentence]")
    example.get_by_role("button", name="Look", exact=True).click()
    example.get_by_role("button", name="The whole map").click()
    page.locator(".ls-whole-map .hm-map").wait_for()
    view = "document.querySelector('.ls-whole-map').heedmap"
    page.evaluate(f"{view}.whenQuiet()")
    page.evaluate(
        """async (count) => {
            for (let number = 0; number < count; number += 1) {
                const body = JSON.stringify({ text: `sentence ${number}` });
                await fetch("/sentences", { method: "POST", body });
            }
        }""",
        MOST_SENTENCES,
    )
    told = example.locator(".ls-trouble")
    expect(told).to_have_text("")
    page.get_by_role("button", name="Layer 1, head 2").click()
    expect(told).to_contain_text("This map has been closed. For a sentence, press “Look” again")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/sentences", "{}", 400, 'the body must be JSON with a "text"; it is not.'),
        ("/sentences", "[", 400, 'the body must be JSON with a "text"; it is not.'),
        ("/timelines/voices/rows/1", None, 400, "timeline must be opened first; got voices."),
        ("/timelines/voices/rows/-1", None, 400, "query must be a whole number from 0; got '-1'."),
        ("/timelines/look_at", None, 404, "this address does not exist."),
        ("/scenes/9/description", None, 404, "this address does not exist."),
    ],
)
def test_requests_that_make_no_sense(
    page: Page, path: str, body: str | None, status: int, words: str
) -> None:
    answer = page.evaluate(
        """async ({ path, body }) => {
            const how = body === null ? {} : { method: "POST", body };
            const answer = await fetch(path, how);
            return [answer.status, (await answer.json()).error];
        }""",
        {"path": path, "body": body},
    )
    assert answer == [status, words]


def test_a_moment_that_there_is_not(page: Page) -> None:
    said = page.evaluate(
        """async () => {
            await fetch("/timelines/voices");
            return (await (await fetch("/timelines/voices/rows/300")).json()).error;
        }"""
    )
    assert said == "query must be at most 299; got 300."
