"""Recordings that Debian packages carry, fetched with apt-get and kept in the cache.

A `DebianPackage` is pinned by the hash of its archive, which is opened as the ar and tar archives
it is: nothing is installed, and no script of the package runs.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from heedmap.errors import FetchError
from heedmap.models.packages import Progress, cache_folder

_SOUNDS = (".ogg", ".wav")
_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_BYTES = 60


@dataclass(frozen=True)
class DebianPackage:
    """A Debian package of recordings.

    Attributes:
        name: As apt knows it.
        version: The version that is fetched.
        archive_bytes: Its size, to tell people how long it may take.
        archive_sha256: Its hash.
        licence: Under what terms the recordings came; the package's own text lies beside them.
        origin: Who made them, as far as the package says.
    """

    name: str
    version: str
    archive_bytes: int
    archive_sha256: str
    licence: str
    origin: str


def fetch_sounds(package: DebianPackage, progress: Progress | None = None) -> Path:
    """Return the folder with the package's recordings, fetched when it is not there yet.

    The recordings lie where they lie in the package, below ``usr/share``. Beside them are
    ``copyright``, the package's own text, and ``ORIGIN.json``.

    Args:
        package: What to fetch.
        progress: Called with one line of text before something slow begins.

    Returns:
        The folder; it is whole: it was filled elsewhere and then renamed.

    Raises:
        FetchError: if there is no apt-get, if it fails, if the hash differs, or if the cache cannot
            be written. Nothing is kept.

    Cost: a look into the file system when it is there; else the download.
    """
    # The epoch of a version ends in a colon, which not every file system takes.
    version = package.version.rpartition(":")[2]
    folder = cache_folder() / f"{package.name}-{version}-{package.archive_sha256[:8]}"
    try:
        if folder.is_dir():
            return folder
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Inside the cache, so that renaming does not cross file systems.
        with TemporaryDirectory(prefix="fetching-", dir=cache_folder()) as temporary:
            archive = _download(package, Path(temporary), progress)
            unpacked = Path(temporary, "unpacked")
            _unpack(archive, unpacked)
            origin = json.dumps(asdict(package), indent=2, ensure_ascii=False) + "\n"
            (unpacked / "ORIGIN.json").write_text(origin, encoding="utf-8")
            _rename(unpacked, folder)
    except FetchError:
        raise
    except OSError as error:
        raise FetchError(
            f"the cache folder must be writable; got {cache_folder()} "
            f"({error.strerror or error}). "
            "Name another in the environment variable HEEDMAP_CACHE, or make room."
        ) from error
    return folder


def _download(package: DebianPackage, folder: Path, progress: Progress | None) -> bytes:
    """Return the archive, checked against its hash."""
    if shutil.which("apt-get") is None:
        raise FetchError(
            f"{package.name} must be fetched with apt-get; got a system without it. "
            "Give a folder with a folder of recordings for each voice instead."
        )
    if progress:
        megabytes = package.archive_bytes / 1e6
        progress(f"Fetching {package.name} {package.version} with apt-get ({megabytes:.0f} MB) …")
    command = ["apt-get", "download", "--quiet=2", f"{package.name}={package.version}"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    found = sorted(folder.glob("*.deb"))
    if done.returncode != 0 or len(found) != 1:
        complaints = done.stderr.decode(errors="replace").splitlines()
        reasons = [line.removeprefix("E: ") for line in complaints if line.startswith("E: ")]
        raise FetchError(
            f"{package.name} {package.version} must be fetched with apt-get; "
            f"got “{(reasons or ['no reason'])[-1]}”. "
            "Run apt-get update, or give a folder with a folder of recordings for each voice."
        )
    archive = found[0].read_bytes()
    if (sha256 := hashlib.sha256(archive).hexdigest()) != package.archive_sha256:
        raise FetchError(
            f"{found[0].name} must have the sha256 {package.archive_sha256}; got {sha256}. "
            "Nothing was kept: it is not the package that this version of heedmap was tested with."
        )
    return archive


def _unpack(archive: bytes, folder: Path) -> None:
    """Write the recordings and the text of the licence into a folder, which is made."""
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(_data_member(archive))) as tree:
        for member in tree:
            is_licence = member.name.endswith("/copyright")
            content = tree.extractfile(member)
            if content is None or not (is_licence or member.name.endswith(_SOUNDS)):
                continue
            name = "copyright" if is_licence else member.name.partition("usr/share/")[2]
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())


def _data_member(archive: bytes) -> bytes:
    """Return the tar archive with the package's files out of the ar archive."""
    at = len(_AR_MAGIC)
    while archive.startswith(_AR_MAGIC) and at + _AR_HEADER_BYTES <= len(archive):
        name = archive[at : at + 16].decode("ascii", "replace").strip()
        length = int(archive[at + 48 : at + 58])
        at += _AR_HEADER_BYTES
        if name.startswith("data.tar"):
            return archive[at : at + length]
        # Members begin at even places.
        at += length + length % 2
    raise FetchError("a Debian package must hold data.tar; got none. Nothing was kept.")


def _rename(unpacked: Path, folder: Path) -> None:
    try:
        unpacked.rename(folder)
    except OSError:
        # Another process was faster; what it put there is as whole as this.
        if not folder.is_dir():
            raise
