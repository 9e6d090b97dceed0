"""The live map on paper, which is light whatever the screen is."""

from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.scenes import text_scene

INKS = """() => [...document.querySelectorAll(".hm-axis")].map((canvas) => {
    const { width, height } = canvas;
    const copy = Object.assign(document.createElement("canvas"), { width, height });
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    let [darkest, lightest] = [255, 0];
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] === 255) {
            const mean = (data[at] + data[at + 1] + data[at + 2]) / 3;
            [darkest, lightest] = [Math.min(darkest, mean), Math.max(lightest, mean)];
        }
    }
    return [darkest, lightest];
})"""


def test_from_a_dark_screen_the_axes_are_dark_on_paper(open_page: OpenPage) -> None:
    opened = open_page(text_scene(), color_scheme="dark")
    page, root = opened.page, opened.page.locator(".heedmap").first
    on_screen = page.evaluate(INKS)
    # What the browser prints it takes at once, so nothing may wait for a frame.
    on_paper = page.evaluate(f"() => (dispatchEvent(new Event('beforeprint')), ({INKS})())")
    assert all(lightest > 200 for _, lightest in on_screen)
    assert all(darkest < 60 and lightest < 225 for darkest, lightest in on_paper)
    expect(root).to_have_attribute("data-theme", "light")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    opened.quiet()
    expect(root).to_have_attribute("data-theme", "dark")
    assert page.evaluate(INKS) == on_screen
