"""The live map in a browser: what people see, click and type."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import matplotlib
import matplotlib.image
import pytest
import torch
from playwright.sync_api import Route, expect

import heedmap
from heedmap.axes import Axis
from heedmap.explore.scene import Scene, SceneLayer
from tests.browser.conftest import Opened, OpenPage
from tests.browser.scenes import (
    SECONDS_PER_POSITION,
    WORDS,
    cross_scene,
    layer_of,
    numbered,
    sound_scene,
    text_scene,
    weights_of,
)

PAGE = Path(__file__).parents[2] / "src/heedmap/explore/page"
NEARLY = 6
"""By how much of 255 an interpolated colour may differ from that of the whole table."""


def colour_of(opened: Opened, weight: float) -> list[float]:
    scale = opened.view("state()")["range"]
    part = (weight - scale["low"]) / (scale["high"] - scale["low"])
    return [255 * channel for channel in matplotlib.colormaps["viridis"](part)[:3]]


def assert_colour(opened: Opened, query: int, key: int, weight: float) -> None:
    shown = opened.view(f"colourAt({query}, {key})")
    assert shown == pytest.approx(colour_of(opened, weight), abs=NEARLY)


def hash_of(opened: Opened) -> dict[str, str]:
    opened.page.wait_for_timeout(350)
    parts = parse_qs(opened.page.evaluate("location.hash.slice(1)"))
    return {name: values[0] for name, values in parts.items()}


def test_weights_have_the_colours_of_their_values(open_page: OpenPage) -> None:
    weights = weights_of(1, 600, 600)
    opened = open_page(numbered(weights), link="layer=0&at=300,300&zoom=6")
    row = weights[0, 300, 285:315]
    order = row.argsort() + 285
    shown = set()
    for key in order[::4].tolist():
        assert_colour(opened, 300, key, float(weights[0, 300, key]))
        shown.add(tuple(opened.view(f"colourAt(300, {key})")))
    assert len(shown) > 2


def test_blocks_have_the_colours_of_their_means_and_maxima(open_page: OpenPage) -> None:
    # Blocks of four cells, each of one value, so that smoothing between pixels changes nothing.
    blocks = weights_of(1, 40, 40).repeat_interleave(32, 1).repeat_interleave(32, 2)
    opened = open_page(numbered(blocks))
    assert_colour(opened, 16, 16, float(blocks[0, 16, 16]))
    assert_colour(opened, 1000, 400, float(blocks[0, 1000, 400]))
    opened.set(statistic="max")
    assert_colour(opened, 400, 1000, float(blocks[0, 400, 1000]))


def test_a_sharp_screen_shows_the_same_colours(open_page: OpenPage) -> None:
    weights = weights_of(1, 20, 20)
    opened = open_page(numbered(weights), device_scale_factor=2)
    assert_colour(opened, 3, 17, float(weights[0, 3, 17]))
    assert opened.page.evaluate("document.querySelector('.hm-map canvas').width") > 1000


def test_a_click_chooses_and_says_the_weight(open_page: OpenPage) -> None:
    scene = text_scene()
    weights = scene.layers[0].weights[0].to_dense()
    opened = open_page(scene)
    opened.click_cell(3, 8)
    page = opened.page
    state = opened.view("state()")
    assert (state["query"], state["key"]) == (3, 8)
    assert float(page.locator(".hm-weight").inner_text()) == pytest.approx(
        float(weights[3, 8]), rel=6e-3
    )
    expect(page.locator("[aria-live]")).to_contain_text(f"“{WORDS[3]}” 3")
    strongest = int(weights[3].argmax())
    first = page.locator(".hm-ranked-query button").first
    expect(first).to_contain_text(f"“{WORDS[strongest]}” {strongest}")
    first.click()
    opened.quiet()
    assert opened.view("state()")["key"] == strongest
    giver = int(weights[:, strongest].argmax())
    expect(page.locator(".hm-ranked-key button").first).to_contain_text(f"“{WORDS[giver]}” {giver}")
    assert page.locator(".hm-arc").count() == 8


def test_the_pointer_shows_the_weight_under_it(open_page: OpenPage) -> None:
    weights = weights_of(1, 700, 700)
    opened = open_page(numbered(weights))
    opened.page.mouse.move(*opened.view("placeOf(350, 123)"))
    opened.quiet()
    tip = opened.page.locator(".hm-tip")
    query, key = (int(text) for text in re.findall(r"\d+$", tip.inner_text(), re.M)[-2:])
    said = tip.locator("strong").inner_text().replace("−", "-")
    assert float(said) == pytest.approx(float(weights[0, query, key]), rel=6e-3)


def test_a_click_in_the_text_chooses_the_token(open_page: OpenPage) -> None:
    opened = open_page(text_scene())
    place = opened.page.evaluate(
        """word => {
            const node = document.querySelector(".hm-reader").firstChild;
            const range = document.createRange();
            const start = node.data.indexOf(word);
            range.setStart(node, start);
            range.setEnd(node, start + 1);
            const box = range.getBoundingClientRect();
            return [box.left + box.width * 0.7, box.top + box.height / 2];
        }""",
        "because",
    )
    opened.page.mouse.click(*place)
    opened.quiet()
    assert opened.view("state()")["query"] == WORDS.index("because")
    # The emoji is one character to Python and two to the browser.
    expect(opened.page.locator(".hm-mark-query")).to_have_text("because")
    opened.page.keyboard.press("ArrowRight")
    expect(opened.page.locator(".hm-mark-query")).to_have_text("the")


def test_a_long_text_is_laid_out_around_the_chosen_token(open_page: OpenPage) -> None:
    size = 4000
    labels = [f"w{i}" for i in range(size)]
    text = " ".join(labels)
    ends = torch.tensor([len(label) + 1 for label in labels]).cumsum(0).tolist()
    offsets = [(end - len(label) - 1, end - 1) for label, end in zip(labels, ends, strict=True)]
    x = torch.randn(1, size, 4, generator=torch.Generator().manual_seed(0))
    weights = heedmap.AttentionMap.from_factors(x, x)
    layer = SceneLayer("map", "self", weights, 0, 0, ("0",), ("",))
    scene = Scene("long", (layer,), (Axis.of_tokens(text, labels, offsets),))
    opened = open_page(scene, link="layer=0&query=3990")
    mark = opened.page.locator(".hm-mark-query")
    expect(mark).to_have_text("w3990")
    assert opened.page.evaluate(IN_SIGHT)
    assert len(opened.page.locator(".hm-reader").inner_text()) <= 12_000
    opened.set(query=5)
    expect(mark).to_have_text("w5")
    assert opened.page.evaluate(IN_SIGHT)
    opened.page.evaluate("document.querySelector('.hm-reader').scrollTop = 1e6")
    expect(opened.page.locator(".hm-reader")).to_contain_text("w2500")


IN_SIGHT = """() => {
    const box = document.querySelector(".hm-reader").getBoundingClientRect();
    const { top, bottom } = document.querySelector(".hm-mark-query").getBoundingClientRect();
    return box.top <= top && bottom <= box.bottom;
}"""


def test_keys_do_all_that_pointers_do(open_page: OpenPage) -> None:
    opened = open_page(text_scene(), width=1000, height=700)
    page = opened.page
    for _ in range(3):
        page.keyboard.press("+")
        opened.quiet()
    zoomed = opened.view("state()")["view"]
    assert zoomed is not None
    page.keyboard.press("ArrowRight")
    opened.quiet()
    assert opened.view("state()")["view"]["x"] > zoomed["x"]
    page.keyboard.press("0")
    opened.quiet()
    assert opened.view("state()")["view"] is None
    for key in ("n", "s", "c", "l"):
        page.keyboard.press(key)
    opened.quiet()
    state = opened.view("state()")
    shown = [state[part] for part in ("head", "statistic", "colours", "scale")]
    assert shown == [1, "max", "cividis", "log"]
    page.keyboard.press("[")
    page.keyboard.press("[")
    opened.quiet()
    assert (opened.view("state()")["layer"], opened.view("state()")["head"]) == (1, 2)
    for _ in range(2):
        page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("b")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("b")
    opened.quiet()
    state = opened.view("state()")
    query, key = state["query"], state["key"]
    assert state["block"] == {"rows": [query, query + 1], "columns": [key - 1, key + 1]}
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    opened.quiet()
    state = opened.view("state()")
    assert (state["block"], state["query"], state["key"]) == (None, None, None)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_wheel_and_drag_move_the_map_under_the_pointer(open_page: OpenPage) -> None:
    opened = open_page(numbered(weights_of(1, 700, 700)), link="at=350,350&zoom=3")
    left, top = opened.view("placeOf(330, 340)")
    opened.page.mouse.move(left, top)
    for _ in range(2):
        opened.page.mouse.wheel(0, -240)
    opened.quiet()
    assert opened.view("placeOf(330, 340)") == pytest.approx([left, top], abs=3)
    before = opened.view("state()")["view"]["x"]
    opened.page.mouse.down()
    opened.page.mouse.move(left - 150, top, steps=3)
    opened.page.mouse.up()
    opened.quiet()
    assert opened.view("state()")["view"]["x"] > before
    assert opened.view("state()")["query"] is None


def test_two_fingers_zoom(open_page: OpenPage) -> None:
    opened = open_page(numbered(weights_of(1, 700, 700)), has_touch=True, link="at=350,350&zoom=3")
    touch = opened.context.new_cdp_session(opened.page)
    left, top = opened.view("placeOf(350, 350)")
    for kind, apart in (("touchStart", 40), ("touchMove", 60), ("touchMove", 80)):
        points = [{"x": left - apart, "y": top, "id": 0}, {"x": left + apart, "y": top, "id": 1}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    opened.quiet()
    state = opened.view("state()")
    assert state["view"]["zoom"] == pytest.approx(4, abs=0.05)
    assert state["view"]["x"] == pytest.approx(350, abs=3)
    assert state["query"] is None


def test_what_is_seen_no_more_is_given_up(open_page: OpenPage) -> None:
    held: list[Route] = []
    opened = open_page(numbered(weights_of(1, 2100, 2100)), allow_faults=True)
    opened.page.route("**/tiles", lambda route: held.append(route))
    given_up: list[str] = []
    opened.page.on("requestfailed", lambda request: given_up.append(request.post_data or ""))
    show = "document.getElementById('heedmap').heedmap.set({view: {x: %d, y: %d, zoom: 4}})"
    opened.page.evaluate(show % (300, 300))
    opened.page.wait_for_timeout(150)
    opened.page.evaluate(show % (1900, 1900))
    opened.page.wait_for_timeout(150)
    left, wanted = held
    assert given_up == [left.request.post_data]
    wanted.continue_()
    opened.quiet()


def test_layers_and_heads_are_chosen_by_lists_and_atlas(open_page: OpenPage) -> None:
    scene = text_scene()
    opened = open_page(scene)
    page = opened.page
    assert page.locator(".hm-thumbnail").count() == 6
    page.get_by_role("combobox", name="Layer", exact=True).select_option("1")
    opened.quiet()
    page.get_by_role("combobox", name="Head", exact=True).select_option("2")
    opened.quiet()
    assert_colour(opened, 4, 5, float(scene.layers[1].weights[2, 4, 5]))
    page.get_by_role("button", name="Layer 0, head 0: broad").click()
    opened.quiet()
    assert_colour(opened, 4, 5, float(scene.layers[0].weights[0, 4, 5]))
    page.get_by_role("button", name="Next head").click()
    assert opened.view("state()")["head"] == 1


def test_a_block_has_its_sums(open_page: OpenPage) -> None:
    weights = weights_of(1, 12, 12)
    opened = open_page(numbered(weights))
    page = opened.page
    page.get_by_role("button", name="Mark a block").click()
    page.mouse.move(*opened.view("placeOf(2, 3)"))
    page.mouse.down()
    page.mouse.move(*opened.view("placeOf(5, 9)"), steps=4)
    page.mouse.up()
    opened.quiet()
    assert opened.view("state()")["block"] == {"rows": [2, 6], "columns": [3, 10]}
    block = weights[0, 2:6, 3:10]
    said = [float(text.split()[0]) for text in page.locator(".hm-figures dd").all_inner_texts()]
    wanted = [block.sum(), block.mean(), block.max(), 100 * block.sum() / weights[0, 2:6].sum()]
    assert said == pytest.approx([float(number) for number in wanted], rel=6e-3)
    page.get_by_role("button", name="Choose its largest weight").click()
    state = opened.view("state()")
    assert weights[0, state["query"], state["key"]] == block.max()
    page.get_by_role("button", name="Remove the block").click()
    expect(page.locator(".hm-block")).to_be_hidden()


def test_a_link_brings_the_view_back(open_page: OpenPage) -> None:
    opened = open_page(
        text_scene(),
        link="layer=1&head=2&statistic=max&colours=magma&scale=log&limits=0.001,0.5"
        "&at=5,6&zoom=6&query=4&key=7&block=1,3,2,4&language=zh&theme=dark",
    )
    state = opened.view("state()")
    wanted = {
        "layer": 1,
        "head": 2,
        "statistic": "max",
        "colours": "magma",
        "scale": "log",
        "limits": [0.001, 0.5],
        "query": 4,
        "key": 7,
        "block": {"rows": [1, 3], "columns": [2, 4]},
        "language": "zh",
        "theme": "dark",
        "range": {"low": 0.001, "high": 0.5},
    }
    assert {name: state[name] for name in wanted} == wanted
    assert (state["view"]["x"], state["view"]["y"]) == (5, 6)
    opened.click_cell(5, 5)
    opened.click_cell(6, 6)
    assert hash_of(opened)["query"] == "6"
    opened.page.go_back()
    opened.quiet()
    assert opened.view("state()")["query"] == 5
    opened.page.go_forward()
    opened.quiet()
    assert opened.view("state()")["query"] == 6


def test_a_scale_fixed_at_zero_can_be_logarithmic(open_page: OpenPage) -> None:
    opened = open_page(text_scene(), link="layer=0&scale=log&limits=0,0.5")
    assert opened.view("state()")["range"] == {"low": pytest.approx(5e-5), "high": 0.5}


def test_a_broken_link_shows_what_it_can(open_page: OpenPage) -> None:
    opened = open_page(
        text_scene(),
        link="layer=9&head=-1&statistic=median&colours=__proto__&scale=&limits=5,1&at=1&zoom=x"
        "&query=99&key=1e9&block=3,1,0,0&language=tlh&theme=pink",
    )
    state = opened.view("state()")
    parts = ("layer", "head", "statistic", "colours", "scale", "limits", "view", "query", "key")
    assert [state[part] for part in parts] == [
        *(0, 0, "mean", "viridis", "linear"),
        *(None, None, None, None),
    ]


def test_both_languages_say_everything(open_page: OpenPage) -> None:
    opened = open_page(text_scene(), locale="zh-CN")
    tables = opened.page.evaluate(
        """async () => ({
            en: (await import("/page/strings_en.js")).strings,
            zh: (await import("/page/strings_zh.js")).strings,
        })"""
    )
    assert list(tables["en"]) == list(tables["zh"])
    assert all(tables["zh"].values())
    assert all(re.search(r"[\u4e00-\u9fff]", text) for text in tables["zh"].values())
    placeholders = {
        name: [set(re.findall(r"\{\w+\}", tables[language][name])) for language in tables]
        for name in tables["en"]
    }
    assert all(english == chinese for english, chinese in placeholders.values())
    opened.set(query=3, key=4, block={"rows": [0, 2], "columns": [0, 2]})
    opened.page.keyboard.press("?")
    for language, name in (("zh", "中文"), ("en", "English")):
        opened.page.evaluate(
            "l => document.getElementById('heedmap').heedmap.set({language: l})", language
        )
        opened.quiet()
        assert opened.page.evaluate("document.documentElement.lang") == language
        assert name in opened.page.locator("header select[aria-label]").inner_text()
        allowed = [
            re.compile(re.sub(r"\\{\w+\\}", ".*", re.escape(text)), re.S)
            for text in tables[language].values()
        ]
        said = opened.page.evaluate(SAID)
        assert len(said) > 60
        unknown = [t for t in said if not any(pattern.fullmatch(t) for pattern in allowed)]
        assert unknown == []


SAID = """() => {
    const root = document.querySelector(".heedmap");
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const said = [];
    while (walker.nextNode()) {
        const inside = walker.currentNode.parentElement;
        const text = walker.currentNode.data.trim();
        if (text && !inside.closest("[data-content]")) said.push(text);
    }
    for (const named of document.querySelectorAll(".heedmap [data-name]"))
        said.push(named.getAttribute("aria-label"));
    return said;
}"""


def test_every_control_has_a_name_and_takes_the_focus(open_page: OpenPage, tmp_path: Path) -> None:
    opened = open_page(sound_scene(tmp_path))
    nameless = opened.page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, audio, [tabindex='0']")]
            .filter(e => !(e.getAttribute("aria-label") || e.closest("label")?.textContent.trim()
                || e.textContent.trim()))
            .map(e => e.outerHTML)"""
    )
    assert nameless == []
    reached = set()
    for _ in range(40):
        opened.page.keyboard.press("Tab")
        reached.add(opened.page.evaluate("document.activeElement.className || 'none'"))
    assert {"hm-map", "hm-select", "hm-button", "hm-number", "hm-thumbnail"} <= reached


def test_choosing_a_row_goes_to_its_moment_and_back(open_page: OpenPage, tmp_path: Path) -> None:
    opened = open_page(sound_scene(tmp_path))
    page = opened.page
    now = "document.querySelector('audio').currentTime"
    opened.until("document.querySelector('audio').readyState > 0")
    opened.click_cell(100, 40)
    query = opened.view("state()")["query"]
    opened.until(f"Math.abs({now} - {(query + 0.5) * SECONDS_PER_POSITION}) < 0.03")
    page.evaluate("document.querySelector('audio').currentTime = 10.01")
    opened.until("document.getElementById('heedmap').heedmap.state().query === 200")
    page.get_by_role("button", name="Play the key’s moment").click()
    opened.until(f"!document.querySelector('audio').paused && {now} < 3")
    opened.until("document.querySelector('audio').paused")
    assert opened.view("state()")["query"] == 200
    page.evaluate("document.querySelector('audio').play()")
    opened.until("document.getElementById('heedmap').heedmap.state().query < 60")
    page.evaluate("document.querySelector('audio').pause()")
    opened.quiet()


def test_what_a_link_brings_back_can_be_heard(open_page: OpenPage, tmp_path: Path) -> None:
    opened = open_page(sound_scene(tmp_path), link="query=100&key=50")
    state = opened.view("state()")
    assert (state["layer"], state["query"], state["key"]) == (0, 100, 50)
    for name in ("Play the query’s moment", "Play the key’s moment"):
        expect(opened.page.get_by_role("button", name=name)).to_be_enabled()


def test_rows_of_long_recordings_are_named_in_full(open_page: OpenPage) -> None:
    times = [(890 + 0.02 * i, 890.02 + 0.02 * i) for i in range(600)]
    layer = layer_of(weights_of(1, 600, 600))
    link = "layer=0&at=300,300&zoom=6&query=300&key=20"
    opened = open_page(Scene("long", (layer,), (Axis.of_seconds(times),)), link=link)
    # What is written onto the sides is only on canvases: listen to what is written.
    said = opened.page.evaluate(
        """async () => {
            const said = [];
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                said.push(text);
                return write.call(this, text, ...rest);
            };
            const map = document.getElementById("heedmap").heedmap;
            map.set({ query: 301 });
            await map.whenQuiet();
            return said;
        }"""
    )
    times_said = [text for text in said if re.search(r"\d:\d", text)]
    assert len(times_said) > 5
    assert [text for text in times_said if "…" in text] == []
    assert "14:56.02" in times_said
    assert "← 14:50.40" in times_said
    first = opened.page.locator(".hm-ranked-query button").first
    assert re.fullmatch(r"1[45]:\d\d\.\d\d", first.locator(".hm-name").inner_text())
    assert re.match(r"1[45]:\d\d\.\d\d–1[45]:\d\d\.\d\d: ", first.get_attribute("aria-label") or "")


def test_few_queries_and_many_keys_fill_the_map(open_page: OpenPage) -> None:
    scene = cross_scene()
    opened = open_page(scene)
    left, top = opened.view("placeOf(0, 0)")
    right, bottom = opened.view(f"placeOf({len(WORDS) - 1}, 699)")
    assert right - left > 500
    assert bottom - top > 200
    opened.set(query=4, key=300)
    expect(opened.page.locator(".hm-chosen .hm-of-key")).to_contain_text("15.0")


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_the_smallest_maps(open_page: OpenPage, size: int) -> None:
    opened = open_page(numbered(weights_of(1, size, size)))
    page = opened.page
    for key in ("+", "0", "Shift+ArrowDown", "l", "b", "Escape", "n"):
        page.keyboard.press(key)
    opened.quiet()
    empty = page.get_by_text("There are no positions")
    if size == 0:
        expect(empty).to_be_visible()
    else:
        assert opened.view(f"colourAt({size - 1}, 0)") is not None
        assert empty.count() == 0


def test_what_is_no_number_has_a_colour_of_its_own(open_page: OpenPage) -> None:
    weights = weights_of(1, 30, 30)
    weights[0, 4] = torch.nan
    opened = open_page(numbered(weights))
    assert opened.view("colourAt(4, 7)") == [255, 92, 205]
    expect(opened.page.get_by_text("not a number")).to_be_visible()
    opened.click_cell(4, 7)
    expect(opened.page.locator(".hm-weight")).to_have_text("NaN")


def test_negative_values_have_a_scale_from_the_least_to_the_largest(open_page: OpenPage) -> None:
    values = weights_of(1, 30, 30).log()
    values[0, 3, 20] = -torch.inf
    opened = open_page(numbered(values), link="layer=0&query=5&key=7&scale=log")
    least = float(values[values.isfinite()].min())
    assert opened.view("state()")["range"] == pytest.approx(
        {"low": least, "high": float(values.max())}
    )
    for query, key in ((4, 7), (9, 9), (20, 3)):
        assert_colour(opened, query, key, float(values[0, query, key]))
    assert opened.page.locator(".hm-weight").inner_text().startswith("−")
    assert "in all" not in opened.page.inner_text("#heedmap")
    opened.page.get_by_role("button", name="Keep this scale").click()
    opened.page.wait_for_timeout(350)
    opened.page.reload()
    opened.quiet()
    assert opened.view("state()")["range"]["low"] == pytest.approx(least, rel=1e-4)


def test_what_nobody_named_is_named_in_both_languages(open_page: OpenPage) -> None:
    layer = layer_of(weights_of(1, 12, 12), name="plain features")
    scene = Scene("the text", (layer,), text_scene().axes, "none")
    opened = open_page(scene)
    assert opened.page.locator(".hm-title").inner_text().split("\n") == ["the text", "no model"]
    opened.set(language="zh")
    assert opened.page.locator(".hm-title").inner_text().split("\n") == ["文本", "无模型"]
    assert "朴素特征" in opened.page.locator(".hm-atlas").inner_text()
    assert opened.page.title() == "文本 · heedmap"


def test_hidden_weights_are_grey(open_page: OpenPage) -> None:
    opened = open_page(numbered(weights_of(1, 30, 30).tril()))
    assert opened.view("colourAt(3, 20)") == [220, 220, 220]


def test_a_picture_is_saved(open_page: OpenPage) -> None:
    opened = open_page(text_scene())
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="Save a picture").click()
    assert download.value.suggested_filename == "a_text-0-0.png"
    picture = matplotlib.image.imread(download.value.path())
    assert picture.shape[0] > 400
    assert len({tuple(colour) for colour in picture[::7, ::7].reshape(-1, picture.shape[2])}) > 20


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_four_hundred_pixels_are_enough(open_page: OpenPage, locale: str, scheme: str) -> None:
    opened = open_page(
        text_scene(), width=400, height=860, locale=locale, color_scheme=scheme, has_touch=True
    )
    page = opened.page
    opened.set(query=2, key=5)
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert page.evaluate("document.querySelector('.heedmap').dataset.theme") == scheme
    small = page.evaluate(
        """() => [...document.querySelectorAll(".heedmap button, .heedmap select")]
            .filter(e => e.offsetParent && e.getBoundingClientRect().height < 40)
            .map(e => e.outerHTML)"""
    )
    assert small == []
    page.touchscreen.tap(*opened.view("placeOf(4, 4)"))
    opened.quiet()
    assert opened.view("state()")["query"] == 4


def test_the_bar_has_one_row_in_a_usual_window(open_page: OpenPage) -> None:
    labels = ("nearby (within 1 s)", "first position (sink)", "")
    scene = text_scene()
    layers = [
        replace(layer, name="distilbert.transformer.layer.0.attention", labels=labels)
        for layer in scene.layers
    ]
    long = replace(scene, layers=tuple(layers), model="distilbert-base-multilingual-cased")
    opened = open_page(long, width=1400)
    for language in ("en", "zh"):
        opened.set(language=language)
        assert opened.page.evaluate("document.querySelector('.hm-bar').offsetHeight") < 70


def test_a_map_can_be_mounted_anywhere_and_taken_away(open_page: OpenPage) -> None:
    opened = open_page(text_scene())
    found = opened.page.evaluate(
        """async () => {
            const { mount } = await import("/page/main.js");
            const { httpTransport } = await import("/page/transport_http.js");
            document.getElementById("heedmap").heedmap.destroy();
            const address = location.href;
            const element = document.body.appendChild(document.createElement("div"));
            const how = { language: "zh", link: "layer=1&query=2" };
            const map = mount(element, httpTransport(), how);
            await map.whenQuiet();
            map.set({ query: 3 });
            await map.whenQuiet();
            const { layer, query, language } = element.heedmap.state();
            const kept = location.href === address;
            map.destroy();
            return [layer, query, language, kept, element.childElementCount];
        }"""
    )
    assert found == [1, 3, "zh", True, 0]
    opened.page.evaluate("document.body.replaceChildren()")


def test_no_file_of_the_page_is_too_long() -> None:
    long = {p.name: n for p in PAGE.glob("*.js") if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}
