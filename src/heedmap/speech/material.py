"""Voices and music that Debian packages carry, and those of one's own, to make conversations of.

The voices of the game Fillets NG are acted dialogue: the name of a file tells who speaks. (In six
levels of the Czech game the letters are those of the same two parts, but other people speak; these
are left out.) Asterisk comes with announcements, one speaker a language, at 8 kHz; English and
Spanish were spoken by the same person and are one voice here. Two games for children name letters
and things.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from heedmap.errors import ArgumentError, InputError
from heedmap.models.packages import Progress
from heedmap.speech.debian import DebianPackage, fetch_sounds

_GAME = "Fillets NG, by ALTAR interactive, Ivo and Pavel Danihelka and translators"


def _fillets(language: str, archive_bytes: int, sha256: str) -> DebianPackage:
    return DebianPackage(
        name=f"fillets-ng-data-{language}",
        version="1.0.1-1.1",
        archive_bytes=archive_bytes,
        archive_sha256=sha256,
        licence="GPL-2",
        origin=_GAME,
    )


def _announcements(
    language: str, archive_bytes: int, sha256: str, speaker: str, licence: str = "CC BY-SA 3.0"
) -> DebianPackage:
    return DebianPackage(
        name=f"asterisk-core-sounds-{language}-wav",
        version="1.6.1-1",
        archive_bytes=archive_bytes,
        archive_sha256=sha256,
        licence=licence,
        origin=f"{speaker}, for the telephone exchange Asterisk",
    )


_CZECH = _fillets(
    "cs", 39_042_172, "3ecef99b9456f1c80c9625c6f2418642b52d58e7167a46bad7a412db17991b14"
)
_DUTCH = _fillets(
    "nl", 32_593_580, "afb4443fda9ab507dee578b75be857d121718a1cd6017a474f30e0eb13dc9d10"
)
_ENGLISH = _announcements(
    "en",
    18_272_864,
    "2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d",
    "Allison Smith",
)
_SPANISH = _announcements(
    "es",
    23_767_256,
    "9283a09a6d56fccdcc2bcfe86c48f0f844289cfbd46a3184d8785a6f7f569903",
    "Allison Smith",
)
_FRENCH = _announcements(
    "fr",
    18_516_060,
    "8d4e1bc32ed5ba7fbda40841ca1825ed20cc6232724a473c90f8bb0e53e6073e",
    "June Wallack",
)
_ITALIAN = _announcements(
    "it",
    18_262_124,
    "5a26638089e134b8ac39363fe249c5c93c50cd8bfdc9b2499ae61ec4a35e2fcb",
    "Carlo Flora",
)
_RUSSIAN = _announcements(
    "ru",
    18_788_860,
    "ccbfaebfa450b7a9ddf644ae0f3d1e9017d5df7c0aebe816e946345589d38201",
    "Maxim Topal (ivrvoice.ru)",
    "CC BY 3.0",
)
_VENETIAN = DebianPackage(
    name="asterisk-prompt-it-menardi-wav",
    version="1:1.4.22+mm20110907-3.1",
    archive_bytes=18_776_300,
    archive_sha256="3094530d98f8758ac275572d59624c41f60969fef883f34f4886d144f3dfeb21",
    licence="CC BY-SA 3.0",
    origin="Paola Dal Zot and Marco Menardi, for the telephone exchange Asterisk",
)
_LETTERS = DebianPackage(
    name="klettres-data",
    version="4:22.12.3-1",
    archive_bytes=39_529_084,
    archive_sha256="1186d257a19e84230856baea0b0b1ded8be9195080fcdb2588970b5cd937f5a8",
    licence="GPL-2 or later",
    origin="KLettres, a game of the KDE project, read by volunteers",
)
_THINGS = DebianPackage(
    name="ktuberling-data",
    version="4:22.12.3-1",
    archive_bytes=46_661_752,
    archive_sha256="fba44c875bfa31ea488dadd9263e87a4dcaea0bd47d28817f6c0dc6d2af970ed",
    licence="GPL-2 or later",
    origin="KTuberling, a game of the KDE project, read by volunteers",
)
_MUSIC = DebianPackage(
    name="asterisk-moh-opsound-wav",
    version="2.03-1.1",
    archive_bytes=13_969_212,
    archive_sha256="8f9d808a729d305c2d3343993f21ca5e6829e411682618dc8ea7aa8bc24a566c",
    licence="CC BY-SA 3.0",
    origin="Paul Shuler (Macroform), Manolo Camp, Reno Project",
)


@dataclass(frozen=True)
class PackagedVoice:
    """A voice, and how to tell its clips.

    Attributes:
        packages: Where its clips are.
        pattern: Found in the names of its clips, endings left off.
        folder: A folder that they lie in, at whatever depth; any where none is given.
        other_folders: Folders in which such names are of other people.
    """

    packages: tuple[DebianPackage, ...]
    pattern: str
    folder: str | None = None
    other_folders: tuple[str, ...] = ()

    def owns(self, path: Path) -> bool:
        """Return whether a sound file of the packages is a clip of this voice."""
        if self.folder is not None and self.folder not in path.parts:
            return False
        if not set(self.other_folders).isdisjoint(path.parts):
            return False
        return re.search(self.pattern, path.stem) is not None


_ANNOUNCED = "^(?!beep|ascending-2|descending-2|confbridge-(join|leave|begin-)|tt-monkeys|[0-9]+$)"
"""Not tones, fanfares and animals, nor what has a number for a name: silence, and single digits."""

_SMALL_FISH, _BIG_FISH = "(^|[-_])m([-_]|$)", "(^|[-_])v([-_]|$)"

_LATER_LEVELS = ("fdto", "hanoi", "hole", "linux", "nowall", "rush")
"""Added later, at 44.1 kHz: others speak the Czech parts there."""

REPORTED_VOICES: dict[str, PackagedVoice] = {
    "Czech small fish": PackagedVoice((_CZECH,), _SMALL_FISH, other_folders=_LATER_LEVELS),
    "Czech big fish": PackagedVoice((_CZECH,), _BIG_FISH, other_folders=_LATER_LEVELS),
    "Dutch small fish": PackagedVoice((_DUTCH,), _SMALL_FISH),
    "Dutch big fish": PackagedVoice((_DUTCH,), _BIG_FISH),
}
"""Voices that figures are reported on, and that nothing is trained on."""

TELEPHONE_VOICES: dict[str, PackagedVoice] = {
    "Allison Smith": PackagedVoice((_ENGLISH, _SPANISH), _ANNOUNCED),
    "June Wallack": PackagedVoice((_FRENCH,), _ANNOUNCED),
    "Carlo Flora": PackagedVoice((_ITALIAN,), _ANNOUNCED),
    "Russian announcer": PackagedVoice((_RUSSIAN,), _ANNOUNCED),
    "Paola Dal Zot": PackagedVoice((_VENETIAN,), _ANNOUNCED),
}
"""Voices to train on and to choose settings by, at 8 kHz."""

MINOR_VOICES: dict[str, PackagedVoice] = {
    "Czech narrator": PackagedVoice((_CZECH,), "^kd-", folder="briefcase"),
    "Czech stone head": PackagedVoice((_CZECH,), "^vit-hs-", folder="city"),
    "Czech robot": PackagedVoice((_CZECH,), "^ch-r-", folder="corridor"),
}
"""Voices to train on and to choose settings by, at 22 kHz; one to two and a half minutes each."""

SCHOOL_VOICES: dict[str, PackagedVoice] = {
    f"{game} {language}": PackagedVoice((package,), "", folder=language)
    for game, package, languages in (
        ("letters", _LETTERS, "ar cs en en_GB es fr he it lt nb nds nl pt_BR ru tn uk"),
        ("things", _THINGS, "de el fr gl lt sl wa"),
    )
    for language in languages.split()
}
"""Voices to train on: single letters, syllables and words, at 44 kHz, 27 to 240 s of each.

Languages of these games are left out where several people share the work.
"""

PACKAGED_VOICES = REPORTED_VOICES | TELEPHONE_VOICES | MINOR_VOICES | SCHOOL_VOICES

# Two files of the Dutch game hold a header and no sound.
_LEAST_BYTES = 4000


def packaged_voices(
    names: Iterable[str], progress: Progress | None = None
) -> dict[str, list[Path]]:
    """Return the clips of packaged voices, fetched when they are not there yet.

    Args:
        names: Some of `PACKAGED_VOICES`.
        progress: Called with one line of text before something slow begins.

    Returns:
        For each name sound files in order of their names, as `heedmap.speech.simulation.simulate`
        takes them.

    Raises:
        ArgumentError: if a name is none of a packaged voice.
        FetchError: if a package cannot be fetched.
    """
    names = list(names)
    for name in names:
        if name not in PACKAGED_VOICES:
            known = ", ".join(PACKAGED_VOICES)
            raise ArgumentError(f"names must be of packaged voices; got {name}. Choose of {known}.")
    return {name: _clips(PACKAGED_VOICES[name], progress) for name in names}


def _clips(voice: PackagedVoice, progress: Progress | None) -> list[Path]:
    clips = []
    for package in voice.packages:
        folder = fetch_sounds(package, progress)
        clips += [
            path
            for path in folder.rglob("*.*")
            if path.suffix in (".ogg", ".wav")
            and path.stat().st_size >= _LEAST_BYTES
            and voice.owns(path.relative_to(folder))
        ]
    return sorted(clips)


def packaged_music(progress: Progress | None = None) -> list[Path]:
    """Return five pieces of music, fetched when they are not there yet.

    Args:
        progress: Called with one line of text before something slow begins.

    Raises:
        FetchError: if the package cannot be fetched.
    """
    return sorted(fetch_sounds(_MUSIC, progress).rglob("*.wav"))


def voices_of_folder(folder: str | Path) -> dict[str, list[Path]]:
    """Return the clips of a folder that has a folder of sound files for each voice.

    Args:
        folder: Its folders are named like the voices; files that lie elsewhere are not looked at.

    Raises:
        InputError: if there is no such folder, or if no voice has a clip in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"the folder of voices must be a folder; got {folder}. Check the name.")
    endings = {".wav", ".ogg", ".flac", ".mp3", ".m4a"}
    voices = {
        inner.name: sorted(path for path in inner.iterdir() if path.suffix.lower() in endings)
        for inner in sorted(folder.iterdir())
        if inner.is_dir()
    }
    if not any(voices.values()):
        raise InputError(
            f"the folder of voices must have a folder of sound files for each voice; got {folder}, "
            "which has none. Make it VOICE/*.wav."
        )
    return {name: clips for name, clips in voices.items() if clips}
