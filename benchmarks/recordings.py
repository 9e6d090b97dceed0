"""Real recordings with true turns: the clips that pyannote.audio's source archive and wheel carry.

The source archive is fetched with pip, which checks its hash before it runs the archive's own build
script merely to read its metadata; from the archive we read data alone. Clips and references are
kept in the cache, beside the licence.
"""

import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from unicodedata import combining, normalize

from heedmap.media import Sound
from heedmap.models.packages import PACKAGED, cache_folder, fetch_file
from heedmap.speech.rttm import read_rttm, read_uem
from heedmap.speech.turns import Turn

WANTED = "pyannote-audio==4.0.7"
SHA256 = "3a903dfb5ca711d134cc2522561c9158b186836f5d62e8a57c46c6648e8a8229"
PARTS = ("development", "test", "train")


@dataclass(frozen=True)
class Recording:
    """A recording, who truly speaks in it when, and which stretches of it are scored."""

    name: str
    path: Path
    turns: tuple[Turn, ...]
    spans: tuple[tuple[float, float], ...]


def recordings() -> list[Recording]:
    """Return the 14 clips and the sample, in the order of their names."""
    folder = fetch_clips()
    # One is called trñ00.wav where its reference says trn00.
    paths = {_plain(path.stem): path for path in folder.glob("*.wav")}
    found = [
        Recording(name, paths[_plain(name)], tuple(turns), tuple(spans[name]))
        for part in PARTS
        for spans in [read_uem(folder / f"debug.{part}.uem")]
        for name, turns in read_rttm(folder / f"debug.{part}.rttm").items()
    ]
    sample = fetch_file(PACKAGED["sample.wav"], print)
    ((_, turns),) = read_rttm(fetch_file(PACKAGED["sample.rttm"])).items()
    whole = ((0.0, Sound.of_file(sample).duration_seconds),)
    return [*sorted(found, key=lambda r: r.name), Recording("sample", sample, tuple(turns), whole)]


def _plain(name: str) -> str:
    return "".join(c for c in normalize("NFD", name) if not combining(c))


def fetch_clips() -> Path:
    """Return the folder with the clips and references of the source archive."""
    folder = cache_folder() / f"{WANTED.replace('==', '-')}-source-{SHA256[:8]}"
    if folder.is_dir():
        return folder
    cache_folder().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="fetching-", dir=cache_folder()) as temporary:
        requirements = Path(temporary, "requirements.txt")
        requirements.write_text(f"{WANTED} --hash=sha256:{SHA256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", "pyannote-audio", "--require-hashes"]
        subprocess.run([*command, "-d", temporary, "-r", str(requirements)], check=True)
        (archive,) = Path(temporary).glob("*.tar.gz")
        unpacked = Path(temporary, "unpacked")
        unpacked.mkdir()
        with tarfile.open(archive) as tree:
            for member in tree:
                name = PurePosixPath(member.name).name
                wanted = re.search(
                    r"^[^/]+/(LICENSE|tests/data/[^/]+\.(wav|rttm|uem))$", member.name
                )
                if wanted and (content := tree.extractfile(member)):
                    with (unpacked / name).open("wb") as file:
                        shutil.copyfileobj(content, file)
        unpacked.rename(folder)
    return folder
