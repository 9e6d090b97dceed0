"""A page that uses our stylesheet shows Chinese in a browser that has no font for it."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from heedmap.plot.fonts import SHIPPED
from tests.bare_machine import settings_of_fonts

PAGE = f"""<!doctype html><meta charset="utf-8">
<link rel="stylesheet" href="{SHIPPED.with_name("fonts.css").as_uri()}">
<style>
  span {{ font: 48px FAMILY; display: inline-block; width: 60px; height: 70px }}
</style>
<span id="one">他</span><span id="other">能</span>
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "differ"),
    [('"Heedmap Sans SC", sans-serif', True), ("sans-serif", False)],
    ids=["with our font", "without"],
)
def test_two_characters_do_not_look_the_same(family: str, differ: bool, tmp_path: Path) -> None:
    settings = settings_of_fonts(tmp_path)
    page_file = tmp_path / "page.html"
    page_file.write_text(PAGE.replace("FAMILY", family), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox"],
            env={**os.environ, "FONTCONFIG_FILE": str(settings)},
        )
        page = browser.new_page()
        page.goto(page_file.as_uri())
        page.evaluate("document.fonts.ready.then(() => true)")
        one, other = (page.locator(f"#{name}").screenshot() for name in ("one", "other"))
        browser.close()
    # Where there is no font, both are the same empty box.
    assert (one != other) is differ
