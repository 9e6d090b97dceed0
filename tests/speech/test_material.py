"""Which clips are whose."""

from pathlib import Path

import pytest

from heedmap.errors import ArgumentError, InputError
from heedmap.speech.material import (
    MINOR_VOICES,
    PACKAGED_VOICES,
    REPORTED_VOICES,
    SCHOOL_VOICES,
    TELEPHONE_VOICES,
    packaged_music,
    packaged_voices,
    voices_of_folder,
)


@pytest.mark.parametrize(
    ("path", "voice"),
    [
        ("sound/airplane/cs/let-m-divna.ogg", "Czech small fish"),
        ("sound/airplane/cs/let-v-oko.ogg", "Czech big fish"),
        ("sound/hanoi/nl/m-bude.ogg", "Dutch small fish"),
        ("sound/fdto/nl/proc-v.ogg", "Dutch big fish"),
        ("sound/barrel/nl/bar_v_fotka.ogg", "Dutch big fish"),
        ("sound/hanoi/cs/m-bude.ogg", None),
        ("sound/elevator1/cs/zd1-x-huhu1.ogg", None),
        ("sound/briefcase/cs/kd-ufo.ogg", "Czech narrator"),
        ("sound/briefcase/cs/help1.ogg", None),
        ("sounds/fr_CA_f_June/vm-sorry.wav", "June Wallack"),
        ("sounds/fr_CA_f_June/beep.wav", None),
        ("sounds/fr_CA_f_June/silence/10.wav", None),
        ("sounds/fr_CA_f_June/confbridge-join.wav", None),
    ],
)
def test_the_name_of_a_clip_tells_the_voice(path: str, voice: str | None):
    language = "nl" if "/nl/" in path else "cs" if "/cs/" in path else "fr"
    owners = [
        name
        for name, packaged in PACKAGED_VOICES.items()
        if any(f"-{language}" in package.name for package in packaged.packages)
        and packaged.owns(Path(path))
    ]
    assert owners == ([voice] if voice else [])


def test_reported_voices_are_heard_nowhere_else():
    assert not set(REPORTED_VOICES) & (
        set(TELEPHONE_VOICES) | set(MINOR_VOICES) | set(SCHOOL_VOICES)
    )


def test_an_unknown_voice_is_refused_before_anything_is_fetched():
    with pytest.raises(
        ArgumentError, match=r"names must be of packaged voices; got Nobody\. Choose of "
    ):
        packaged_voices(["Nobody"])


def test_a_folder_of_voices(tmp_path: Path):
    for name in ("Bo/b.wav", "Al/2.ogg", "Al/1.WAV", "Al/notes.txt", "loose.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    voices = voices_of_folder(tmp_path)
    assert {name: [clip.name for clip in clips] for name, clips in voices.items()} == {
        "Al": ["1.WAV", "2.ogg"],
        "Bo": ["b.wav"],
    }


def test_a_folder_without_voices_is_refused(tmp_path: Path):
    with pytest.raises(InputError) as caught:
        voices_of_folder(tmp_path / "absent")
    assert str(caught.value) == (
        f"the folder of voices must be a folder; got {tmp_path / 'absent'}. Check the name."
    )
    with pytest.raises(InputError) as caught:
        voices_of_folder(tmp_path)
    assert str(caught.value) == (
        "the folder of voices must have a folder of sound files for each voice; "
        f"got {tmp_path}, which has none. Make it VOICE/*.wav."
    )


@pytest.mark.slow
def test_packaged_voices_and_music_are_there():
    voices = packaged_voices(PACKAGED_VOICES)
    counts = {name: len(clips) for name, clips in voices.items()}
    assert {name: counts[name] for name in (*REPORTED_VOICES, *MINOR_VOICES)} == {
        "Czech small fish": 682,
        "Czech big fish": 643,
        "Dutch small fish": 737,
        "Dutch big fish": 699,
        "Czech narrator": 11,
        "Czech stone head": 22,
        "Czech robot": 12,
    }
    assert {name: counts[name] for name in TELEPHONE_VOICES} == {
        "Allison Smith": 975,
        "June Wallack": 510,
        "Carlo Flora": 526,
        "Russian announcer": 523,
        "Paola Dal Zot": 481,
    }
    assert sum(counts[name] for name in SCHOOL_VOICES) == 1852
    assert len({clip for clips in voices.values() for clip in clips}) == sum(counts.values())
    assert len(packaged_music()) == 5
