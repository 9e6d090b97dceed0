"""Small sounds and films that the tests make themselves."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

WriteFilm = Callable[..., Path]


@pytest.fixture
def write_film(tmp_path: Path) -> WriteFilm:
    """Return a function that writes pictures (and a tone) as a film and returns its path."""

    def write(
        name: str,
        pictures: Iterable[np.ndarray],
        *,
        codec: str = "libx264",
        milliseconds: list[int] | None = None,
        rotation: int = 0,
        tone_seconds: float = 0.0,
        tone_start_seconds: float = 0.0,
        options: dict[str, str] | None = None,
    ) -> Path:
        pictures = list(pictures)
        path = tmp_path / name
        with av.open(str(path), "w", options=options or {}) as container:
            stream = container.add_stream(codec, rate=25)
            stream.height, stream.width = pictures[0].shape[:2]
            stream.pix_fmt = "yuv420p"
            stream.codec_context.time_base = Fraction(1, 1000)
            if codec == "libx264":
                stream.options = {"preset": "ultrafast", "qp": "10"}
            if rotation:
                stream.set_display_rotation(rotation)
            sound = container.add_stream("aac", rate=16000, layout="mono") if tone_seconds else None
            for number, picture in enumerate(pictures):
                frame = av.VideoFrame.from_ndarray(picture, "rgb24")
                frame.pts = milliseconds[number] if milliseconds else 40 * number
                frame.time_base = Fraction(1, 1000)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
            if sound is not None:
                time = np.arange(round(16000 * tone_seconds)) / 16000
                tone = (0.5 * np.sin(2 * np.pi * 440 * time)).astype(np.float32)
                for start in range(0, len(tone), 1024):
                    frame = av.AudioFrame.from_ndarray(
                        tone[None, start : start + 1024], "fltp", "mono"
                    )
                    frame.rate = 16000
                    frame.pts = start + round(16000 * tone_start_seconds)
                    frame.time_base = Fraction(1, 16000)
                    container.mux(sound.encode(frame))
                container.mux(sound.encode(None))
        return path

    return write
