"""The live map while answers are late, wrong or missing."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import OpenPage
from tests.browser.scenes import numbered, sound_scene, text_scene, weights_of


def test_what_is_approximate_says_so_until_it_is_exact(open_page: OpenPage) -> None:
    done = {"done": 0.434, "exact": False}

    def blur(route: Route) -> None:
        answer = route.fetch()
        body = bytearray(answer.body())
        if not done["exact"]:
            at = 0
            while at < len(body):
                body[at + 8 + 5] = 0
                at += 8 + int.from_bytes(body[at + 4 : at + 8], "little")
        route.fulfill(response=answer, body=bytes(body))

    opened = open_page(
        numbered(weights_of(1, 300, 300)),
        routes={
            "**/tiles": blur,
            "**/progress/**": lambda route: route.fulfill(
                body=json.dumps(done), content_type="application/json"
            ),
        },
    )
    notice = opened.page.get_by_text("Approximate; exact picture 43 %")
    expect(notice).to_be_visible()
    assert opened.view("state()")["exact"] is False
    done.update(done=1.0, exact=True)
    expect(notice).to_be_hidden()
    opened.until("document.getElementById('heedmap').heedmap.state().exact")
    expect(opened.page.locator(".hm-notice")).to_be_hidden()


def test_what_is_busy_is_asked_again(open_page: OpenPage) -> None:
    asked: list[str] = []

    def refuse_first(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=503, headers={"Retry-After": "1"}, body='{"error": "busy"}')
        else:
            route.continue_()

    opened = open_page(
        numbered(weights_of(1, 20, 20)),
        routes={"**/tiles": refuse_first},
        allow_faults=True,
        quiet=False,
    )
    expect(opened.page.get_by_text("heedmap has much to do.")).to_be_visible()
    opened.quiet()
    expect(opened.page.locator(".hm-banner")).to_be_hidden()
    assert opened.view("colourAt(3, 3)") is not None


def test_a_program_that_is_gone_is_said_to_be_gone(open_page: OpenPage) -> None:
    opened = open_page(numbered(weights_of(1, 700, 700)), allow_faults=True)
    opened.running.close()
    opened.page.evaluate("document.getElementById('heedmap').heedmap.set({query: 3, key: 5})")
    expect(opened.page.get_by_text("heedmap does not answer.")).to_be_visible()
    asked: list[str] = []
    opened.page.on("request", lambda request: asked.append(request.url))
    for key in range(6, 12):
        opened.page.evaluate("key => document.getElementById('heedmap').heedmap.set({key})", key)
        opened.page.wait_for_timeout(200)
    # The browser itself asks for the icon again with every new address.
    assert len([url for url in asked if not url.endswith("icon.svg")]) <= 4


@pytest.mark.parametrize("status", [409, 410])
def test_a_sound_that_is_not_as_it_was_is_said_to_be_so(
    open_page: OpenPage, tmp_path: Path, status: int
) -> None:
    opened = open_page(sound_scene(tmp_path), allow_faults=True)
    if status == 409:
        (tmp_path / "hum.wav").write_bytes(b"another")
    else:
        (tmp_path / "hum.wav").unlink()
    opened.page.reload()
    words = {409: "The file has changed since", 410: "The file is no longer there."}
    expect(opened.page.locator(".hm-player [role=alert]")).to_contain_text(words[status])
    opened.quiet()
    opened.set(language="zh")
    words = {409: "已被修改", 410: "已不在原处"}
    expect(opened.page.locator(".hm-player [role=alert]")).to_contain_text(words[status])


def test_what_is_of_another_row_is_dimmed_until_the_row_has_come(open_page: OpenPage) -> None:
    opened = open_page(text_scene(), link="layer=0&query=3&key=4")
    held: list[Route] = []
    opened.page.route("**/rows/**", lambda route: held.append(route))
    opened.page.evaluate("document.getElementById('heedmap').heedmap.set({query: 7})")
    stale = opened.page.locator(".hm-stale")
    expect(stale).to_have_count(3)
    expect(opened.page.locator(".hm-arc")).to_have_count(0)
    opened.page.wait_for_timeout(200)
    for route in held:
        route.continue_()
    opened.quiet()
    expect(stale).to_have_count(0)
    expect(opened.page.locator(".hm-arc")).to_have_count(8)


def test_after_a_silence_all_that_was_asked_for_comes(open_page: OpenPage) -> None:
    opened = open_page(numbered(weights_of(1, 700, 700)), allow_faults=True)
    refused: list[str] = []

    def fail_at_first(route: Route) -> None:
        if len(refused) < 5:
            refused.append(route.request.url)
            route.abort()
        else:
            route.continue_()

    for pattern in ("**/rows/**", "**/columns/**", "**/cells/**"):
        opened.page.route(pattern, fail_at_first)
    opened.page.evaluate("document.getElementById('heedmap').heedmap.set({query: 3, key: 5})")
    expect(opened.page.get_by_text("heedmap does not answer.")).to_be_visible()
    opened.quiet()
    expect(opened.page.locator(".hm-banner")).to_be_hidden()
    assert opened.page.locator(".hm-ranked li").count() == 24
    assert opened.page.locator(".hm-weight").inner_text() not in "–…"


def test_without_the_cookie_the_page_says_what_to_open(open_page: OpenPage) -> None:
    opened = open_page(numbered(weights_of(1, 700, 700)), allow_faults=True)
    opened.context.clear_cookies()
    opened.page.evaluate("document.getElementById('heedmap').heedmap.set({query: 3, key: 5})")
    expect(opened.page.get_by_text("This address is no longer valid.")).to_be_visible()
