"""A machine without a font for Chinese, as far as browsers can tell."""

from pathlib import Path

from matplotlib import get_data_path

SETTINGS = """<?xml version="1.0"?>
<fontconfig>
  <dir>{fonts}</dir>
  <cachedir>{cache}</cachedir>
</fontconfig>
"""


def settings_of_fonts(folder: Path) -> Path:
    """Return the file for ``FONTCONFIG_FILE``, written into a folder: matplotlib's fonts alone."""
    path = folder / "fonts.conf"
    fonts = f"{get_data_path()}/fonts/ttf"
    path.write_text(SETTINGS.format(fonts=fonts, cache=folder), encoding="utf-8")
    return path
