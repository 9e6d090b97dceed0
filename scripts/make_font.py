"""Makes the font in src/heedmap/fonts again: .venv/bin/python scripts/make_font.py

It fetches the Debian package fonts-noto-cjk with apt-get, takes the simplified Chinese face of Noto
Sans CJK out of it, keeps the characters that heedmap needs, and gives the result a name of its own,
as a changed font under the SIL Open Font License should have.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

FOLDER = Path(__file__).parents[1] / "src" / "heedmap" / "fonts"
PACKAGE = "fonts-noto-cjk=1:20220127+repack1-1"
PACKAGE_SHA256 = "4a2515eb6db3978b897fef9709ed0d2b1f4c6c4df4d83d6c4ef65f71f1b1f502"
MEMBER = "usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"
SIMPLIFIED_CHINESE = 2
FAMILY = "Heedmap Sans SC"
FILE = "HeedmapSansSC-Regular.otf"

# Beside GB 2312: Latin with accents, and the signs that our own texts and formulas are written in.
RANGES = (
    (0x0020, 0x024F),
    (0x0300, 0x036F),
    (0x0370, 0x03FF),
    (0x2000, 0x206F),
    (0x2070, 0x209F),
    (0x20A0, 0x20BF),
    (0x2100, 0x214F),
    (0x2190, 0x21FF),
    (0x2200, 0x22FF),
    (0x2460, 0x24FF),
    (0x2500, 0x25FF),
    (0x3000, 0x30FF),
    (0xFF00, 0xFFEF),
)
# In daily use, but younger than GB 2312.
YOUNGER = "啰囧囡囍妳她祂您哒咗喆堃垚晞镕甯珺玥璟祎翀昇炘焜锟烜旻昉昕婳瑄琬犇骉"


def characters() -> set[int]:
    """Return the code points to keep."""
    kept = {code for first, last in RANGES for code in range(first, last + 1)}
    for row in range(0xA1, 0xF8):
        for cell in range(0xA1, 0xFF):
            kept.update(map(ord, bytes([row, cell]).decode("gb2312", errors="ignore")))
    return kept | set(map(ord, YOUNGER))


def fetch(folder: Path) -> Path:
    """Return the collection of fonts out of the Debian package."""
    subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True)
    (archive,) = folder.glob("*.deb")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != PACKAGE_SHA256:
        sys.exit(f"make_font: {archive.name} must have the sha256 {PACKAGE_SHA256}; got {found}.")
    subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)
    return folder / MEMBER


def make(collection: Path) -> TTFont:
    """Return the smaller font under its own name."""
    options = subset.Options(
        layout_features=[],
        hinting=False,
        notdef_outline=True,
        name_IDs=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14],
        name_languages=[0x409],
    )
    options.drop_tables += ["BASE", "VORG", "vhea", "vmtx"]
    font = TTFont(collection, fontNumber=SIMPLIFIED_CHINESE, recalcTimestamp=False)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters())
    cutter.subset(font)
    rename(font)
    return font


def rename(font: TTFont) -> None:
    """Call the font by its own name everywhere, and keep the notices of its makers."""
    version = font["name"].getDebugName(5)
    plain = FAMILY.replace(" ", "")
    given = {
        1: FAMILY,
        3: f"{plain}-Regular; made of {font['name'].getDebugName(3)}",
        4: FAMILY,
        5: f"{version}; a part of Noto Sans CJK SC",
        6: f"{plain}-Regular",
    }
    for number, text in given.items():
        font["name"].setName(text, number, 3, 1, 0x409)
    top = font["CFF "].cff.topDictIndex[0]
    font["CFF "].cff.fontNames = [f"{plain}-Regular"]
    top.FullName, top.FamilyName = FAMILY, FAMILY


def main() -> None:
    """Fetch, make and write."""
    with tempfile.TemporaryDirectory() as folder:
        font = make(fetch(Path(folder)))
        font.save(FOLDER / FILE)
    print(f"{FOLDER / FILE}: {(FOLDER / FILE).stat().st_size} bytes")


if __name__ == "__main__":
    main()
