"""Windows, seeking, silence, and the command; then the sample recording with the packaged model."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import soundfile
import torch
from transformers import (
    BertConfig,
    BertModel,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from heedmap import AttentionMap
from heedmap.cli import main
from heedmap.errors import ArgumentError, InputError
from heedmap.look import Transcript, decoding, transcribe, transcript
from heedmap.look.decoding import Head, Heard, alignment_heads, detect_language, hear, text_of
from heedmap.media import Sound, Text
from heedmap.models.loaded import AudioModel, Encoded
from heedmap.models.packages import PACKAGED, fetch_file
from heedmap.models.sound import whisper_encoder

WORDS = [" one", " two", " three", " four", "."]
END, START, CHINESE, ENGLISH, WRITE, TRANSLATE, NO_TIMES = range(len(WORDS), len(WORDS) + 7)
FIRST_TIME = NO_TIMES + 1
HEADS = ((0, 1), (1, 0))


class Tokenizer:
    """Knows the five pieces above."""

    def convert_ids_to_tokens(self, numbers: list[int]) -> list[str]:
        return [WORDS[number] for number in numbers]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)


def tiny_whisper(**settings: Any) -> AudioModel:
    """Return a Whisper of 2 × 2 heads with random weights and windows of four seconds."""
    config = WhisperConfig(
        vocab_size=FIRST_TIME + 201,
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_source_positions=200,
        max_target_positions=20,
        pad_token_id=END,
        bos_token_id=END,
        eos_token_id=END,
        decoder_start_token_id=START,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        attn_implementation="sdpa",  # pyright: ignore[reportCallIssue]
    )
    torch.manual_seed(0)
    model: Any = WhisperForConditionalGeneration(config).eval()
    known = {
        "is_multilingual": False,
        "max_length": 20,
        "no_timestamps_token_id": NO_TIMES,
        "alignment_heads": [list(head) for head in HEADS],
    }
    for name, setting in (known | settings).items():
        setattr(model.generation_config, name, setting)
    encode = whisper_encoder(WhisperFeatureExtractor(chunk_length=4), 200)
    return AudioModel(model, encode, SimpleNamespace(tokenizer=Tokenizer()), "tiny")


def noise(seconds: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.1 * torch.rand(round(16_000 * seconds), generator=generator)


def heard_slowly(model: AudioModel, encoded: Encoded, heads: tuple[Head, ...], heard: Heard) -> Any:
    """Return the weights that the slow path stores when it is given the same tokens."""
    whisper = model.model
    whisper.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = whisper(
            encoder_outputs=model.run(encoded),
            decoder_input_ids=torch.tensor([heard.tokens[:-1]]),
            output_attentions=True,
        )
    whisper.set_attn_implementation("sdpa")
    return torch.stack([outputs.cross_attentions[layer][0, head] for layer, head in heads])


def test_the_weights_are_those_of_the_slow_path() -> None:
    model = tiny_whisper()
    encoded = model.encode(noise(3))
    heard = hear(model, encoded, HEADS)
    assert heard.weights.shape == (2, len(heard.tokens) - 1, 200)
    dense = AttentionMap.from_weights(heard.weights).to_dense()
    torch.testing.assert_close(dense, heard_slowly(model, encoded, HEADS, heard))
    assert model.model.config._attn_implementation == "sdpa"


def test_listening_leaves_the_model_as_it_was() -> None:
    model = tiny_whisper()
    encoded = model.encode(noise(3))
    first, second = hear(model, encoded, HEADS), hear(model, encoded, HEADS)
    assert first.tokens == second.tokens
    assert isinstance(first.weights, AttentionMap)
    assert torch.equal(first.weights.to_dense(), second.weights.to_dense())


def test_a_model_of_several_languages_is_asked_which_one_first() -> None:
    languages = {"<|zh|>": CHINESE, "<|en|>": ENGLISH}
    tasks = {"transcribe": WRITE, "translate": TRANSLATE}
    model = tiny_whisper(is_multilingual=True, lang_to_id=languages, task_to_id=tasks)
    encoded = model.encode(noise(3))
    language = detect_language(model, encoded)
    assert language in languages
    heard = hear(model, encoded, HEADS, language)
    assert heard.tokens[:3] == (START, languages[language], WRITE)
    assert heard.weights.shape == (2, len(heard.tokens) - 1, 200)
    assert detect_language(tiny_whisper(), encoded) is None


def test_a_character_of_several_tokens_belongs_to_the_one_that_completes_it() -> None:
    class Bytes:
        def convert_ids_to_tokens(self, numbers: list[int]) -> list[int]:
            return numbers

        def convert_tokens_to_string(self, tokens: list[int]) -> str:
            return bytes(tokens).decode(errors="replace")

    assert text_of(Bytes(), list("a饕b".encode())) == ["a", "", "", "饕", "b"]
    assert text_of(Bytes(), list("饕".encode())[:2]) == ["", ""]
    assert text_of(Bytes(), []) == []


def time(seconds: float) -> int:
    return FIRST_TIME + round(seconds / 0.02)


Hear = Callable[..., Heard]


def saying(*windows: list[int | tuple[int, float]]) -> Hear:
    """Return what stands in for a model that writes down these tokens, a list for each window.

    The row that predicts a token given with a time looks from that time on, up to the next given.
    """
    rest = iter(windows)

    def stand_in(model: AudioModel, encoded: Encoded, heads: Any, language: Any = None) -> Heard:
        del model, encoded, heads, language
        chosen = [START, *next(rest), END]
        timed = [
            (row, token[1]) for row, token in enumerate(chosen[1:]) if isinstance(token, tuple)
        ]
        weights = torch.full((1, len(chosen) - 1, 200), 1e-3)
        for (row, begin), (_, end) in pairwise([*timed, (0, 4.0)]):
            weights[0, row, round(begin / 0.02) : round(end / 0.02)] = 1.0
        return Heard(tuple(t[0] if isinstance(t, tuple) else t for t in chosen), weights)

    return stand_in


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Transcript, list[str]]]:
    """Return a function from a sound and a stand-in for the model to its transcript."""

    def run(samples: torch.Tensor, hear: Hear, **options: Any) -> tuple[Transcript, list[str]]:
        told: list[str] = []
        monkeypatch.setattr(transcript, "load_audio_model", lambda *_: tiny_whisper())
        monkeypatch.setattr(transcript, "hear", hear)
        sound = Sound(samples, 16_000, "talk.wav")
        return transcribe(sound, progress=told.append, **options), told

    return run


def test_the_next_window_begins_where_the_last_whole_sentence_ended(listen: Any) -> None:
    first = [time(0), (0, 0.0), (4, 0.5), time(1)]
    second = [time(1), (1, 2.0), (4, 2.5), time(3)]
    made, told = listen(
        noise(6),
        saying(
            [*first, *second, time(3), (2, 3.5)],
            [time(0), (2, 0.0), (3, 1.5), (4, 2.0), time(3)],
        ),
    )
    assert [word.text for word in made.words] == ["one.", "two.", "three", "four."]
    starts = [word.start_seconds for word in made.words]
    assert starts == pytest.approx([0, 2, 2.5, 4.0], abs=0.08)
    assert told == [
        "Listening to 0.00 s to 4.00 s of 6.00 s …",
        "Listening to 2.50 s to 6.00 s of 6.00 s …",
    ]


def test_a_window_that_is_one_sentence_is_done_with(listen: Any) -> None:
    made, told = listen(
        noise(7),
        saying([time(0), (0, 1.0), (1, 2.0)], [time(0), (2, 1.0), time(2)]),
        start_seconds=1.0,
    )
    assert [(word.text, round(word.start_seconds, 1)) for word in made.words] == [
        ("one", 1.0),
        ("two", 3.0),
        ("three", 5.0),
    ]
    assert [line.split()[2] for line in told] == ["1.00", "5.00"]
    assert made.start_seconds == 1.0


def test_a_sentence_that_never_ends_is_kept(listen: Any) -> None:
    made, _ = listen(noise(3), saying([time(0), time(0), (0, 1.0), (1, 2.0)]))
    assert [word.text for word in made.words] == ["one", "two"]


def test_a_model_that_repeats_itself_comes_to_an_end(listen: Any) -> None:
    again = [time(0), (0, 0.0), (4, 0.02), time(0), time(0)]
    made, told = listen(noise(4), saying(*[again] * 9))
    assert len(told) == 4
    assert len(made.words) == 4


def test_text_that_the_limit_cuts_off(listen: Any) -> None:
    def stops(*_: Any, **__: Any) -> Heard:
        weights = torch.full((1, 3, 200), 1e-3)
        weights[0, 0, 10:50] = weights[0, 1, 50:90] = weights[0, 2, 90:130] = 1.0
        return Heard((START, 0, 1, 2), weights)

    made, _ = listen(noise(3), stops)
    assert [word.text for word in made.words] == ["one", "two"]


def test_silence_is_no_error(listen: Any) -> None:
    for samples in (torch.zeros(16_000 * 9), 1e-5 * noise(9)):
        made, told = listen(samples, saying())
        assert made.words == ()
        assert told == []
        assert made.notes[-1] == "there are no words: the sound is silent, or nobody speaks in it"
        assert "note: there are no words" in transcript.report(made)


def test_a_silent_window_is_passed_over(listen: Any) -> None:
    samples = torch.cat([torch.zeros(16_000 * 8), noise(2)])
    made, told = listen(samples, saying([time(0), (0, 1.0), (1, 1.5)]))
    assert told == ["Listening to 8.00 s to 10.00 s of 10.00 s …"]
    assert [word.text for word in made.words] == ["one", "two"]


def test_a_click_in_the_silence_is_not_where_speech_begins(listen: Any) -> None:
    samples = torch.cat([torch.zeros(16_000), noise(2)])
    samples[8000:8800] = 0.5
    made, _ = listen(samples, saying([time(0), (0, 0.2), (1, 2.0)]))
    assert made.words[0].start_seconds == pytest.approx(1.0, abs=0.03)


def test_the_summary(listen: Any, output: Path) -> None:
    made, _ = listen(noise(3), saying([time(0), (0, 1.0), (1, 2.0), (4, 2.6)]), output=output)
    written = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(made.summary()))
    assert written["schema"] == 1
    assert written["input"]["end_seconds"] == 3.0
    assert written["model"]["alignment_heads"][0] == {"layer": 0, "head": 1}
    assert [word["text"] for word in written["words"]] == ["one", "two."]
    assert set(written["words"][0]) == {"text", "start_seconds", "end_seconds", "share"}
    with pytest.raises(InputError, match="without earlier results"):
        listen(noise(3), saying(), output=output)


def test_what_is_no_sound_or_no_place_in_it() -> None:
    with pytest.raises(
        ArgumentError,
        match="source must be a sound to tell when words are spoken; got the text, a text",
    ):
        transcribe(Text.of("to be"))
    sound = Sound(noise(1), 16_000, "talk.wav")
    for start in (-1.0, 1.0, float("nan")):
        with pytest.raises(InputError, match="must lie in the sound, from 0 to 1"):
            transcribe(sound, start_seconds=start)
    with pytest.raises(
        InputError, match=r"source must have 16000 samples a second; got talk\.wav, with 8000"
    ):
        transcribe(Sound(noise(1), 8_000, "talk.wav"))
    with pytest.raises(
        ArgumentError, match="model must be Whisper to tell when words are spoken; got none"
    ):
        transcribe(sound, model="none")


def test_models_that_cannot_tell() -> None:
    tiny = tiny_whisper()
    assert alignment_heads(tiny) == HEADS
    with pytest.raises(ArgumentError, match="which are its alignment_heads; got tiny"):
        alignment_heads(tiny_whisper(alignment_heads=None))
    bert = AudioModel(BertModel(BertConfig(num_hidden_layers=1)), tiny.encode, None, "bert")
    with pytest.raises(
        ArgumentError,
        match=r"must be Whisper .*; got bert, a bert model, which writes down nothing",
    ):
        alignment_heads(bert)
    mute = AudioModel(tiny.model, tiny.encode, WhisperFeatureExtractor(), "mute")
    with pytest.raises(ArgumentError, match="model must come with its tokenizer to write words"):
        alignment_heads(mute)


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder, made the current one, in which there is a sound."""
    monkeypatch.chdir(tmp_path)
    soundfile.write("talk.wav", noise(3).numpy(), 16_000)
    return tmp_path


def test_the_command(
    talk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transcript, "load_audio_model", lambda *_: tiny_whisper())
    monkeypatch.setattr(transcript, "hear", saying([time(0), (0, 0.5), (1, 2.0)]))
    assert main(["look", "talk.wav", "--words", "--start", "0.5"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "talk.wav: audio, 0.50 s to 3.00 s; tiny, 2 alignment heads",
        "",
        "    start       end  word",
        "     0.50      2.50  one",
        "     2.50      2.98  two",
    ]
    assert err == "Listening to 0.50 s to 3.00 s of 3.00 s …\n"
    assert [path.name for path in talk.iterdir()] == ["talk.wav"]


def test_the_command_as_json(
    talk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transcript, "load_audio_model", lambda *_: tiny_whisper())
    monkeypatch.setattr(transcript, "hear", saying([time(0), (0, 0.5), (1, 2.0)]))
    assert main(["look", "talk.wav", "--words", "--json", "-o", "there"]) == 0
    out = capsys.readouterr().out
    assert out == (talk / "there" / "summary.json").read_text(encoding="utf-8")
    assert [path.name for path in (talk / "there").iterdir()] == ["summary.json"]


BAD = {
    "text": (["to be or not"], "must be a sound"),
    "no model": (["talk.wav", "--model", "none"], "must be Whisper"),
    "start outside": (["talk.wav", "--start", "9"], "from 0 to 3"),
    "query": (["talk.wav", "--query", "1s"], "--query must not be given with --words"),
    "layer": (["talk.wav", "--layer", "0"], "--layer must not be given with --words"),
    "head": (["talk.wav", "--head", "0"], "--head must not be given with --words"),
    "output is a file": (["talk.wav", "-o", "talk.wav"], "output must be a folder"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", BAD)
def test_bad_input_to_the_command_is_one_line(
    case: str, talk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD[case]
    assert main(["look", *arguments, "--words"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert [path.name for path in talk.iterdir()] == ["talk.wav"]


@pytest.fixture(scope="module")
def sample() -> Transcript:
    return transcribe(fetch_file(PACKAGED["sample.wav"]))


@pytest.mark.slow
def test_sentences_of_the_recording_begin_where_its_transcript_says(sample: Transcript) -> None:
    said = [word.text for word in sample.words]
    lines = fetch_file(PACKAGED["sample.stm"]).read_text(encoding="utf-8").splitlines()
    errors = {}
    for line in lines:
        start_seconds, sentence = float(line.split()[3]), tuple(line.split()[5:8])
        found = [i for i in range(len(said)) if tuple(said[i : i + len(sentence)]) == sentence]
        if len(found) == 1:
            errors[sentence] = sample.words[found[0]].start_seconds - start_seconds
    assert len(errors) >= 5
    assert max(map(abs, errors.values())) <= 0.3, errors
    assert sum(map(abs, errors.values())) / len(errors) <= 0.1, errors


@pytest.mark.slow
def test_the_first_word_does_not_begin_in_the_silence(sample: Transcript) -> None:
    assert sample.words[0].text == "Hello."
    assert sample.words[0].start_seconds == pytest.approx(6.68, abs=0.1)


@pytest.mark.slow
def test_words_do_not_overlap(sample: Transcript) -> None:
    edges = [edge for word in sample.words for edge in (word.start_seconds, word.end_seconds)]
    assert edges == sorted(edges)
    assert edges[-1] <= 30.0
    assert all(0 <= word.share <= 1 for word in sample.words)


@pytest.mark.slow
def test_the_slow_path_gives_the_same_list(
    sample: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(model: AudioModel, encoded: Encoded, heads: Any, language: Any = None) -> Heard:
        heard = decoding.hear(model, encoded, heads, language)
        weights = heard_slowly(model, encoded, heads, heard)
        return Heard(heard.tokens, AttentionMap.from_weights(weights))

    monkeypatch.setattr(transcript, "hear", slowly)
    found = transcribe(fetch_file(PACKAGED["sample.wav"]))
    assert [(w.text, w.start_seconds, w.end_seconds) for w in found.words] == [
        (w.text, w.start_seconds, w.end_seconds) for w in sample.words
    ]
    shares = [word.share for word in sample.words]
    assert [word.share for word in found.words] == pytest.approx(shares, abs=1e-4)


@pytest.mark.slow
def test_a_part_of_the_recording_and_more_than_a_window_of_it(sample: Transcript) -> None:
    recording = Sound.of_file(fetch_file(PACKAGED["sample.wav"]))
    twice = Sound(torch.cat([recording.samples] * 2), 16_000, "twice.wav")
    told: list[str] = []
    long = transcribe(twice, progress=told.append)
    assert len(told) >= 2
    assert long.words[: len(sample.words) // 2] == sample.words[: len(sample.words) // 2]
    starts = {word.text: word.start_seconds for word in long.words if word.start_seconds > 30}
    assert starts["Sheila"] == pytest.approx(30 + 14.94, abs=0.3)
    part = transcribe(recording, start_seconds=12.4)
    assert [word.text for word in part.words[:3]] == ["This", "is", "Diane"]
    assert part.words[0].start_seconds == pytest.approx(12.54, abs=0.3)
