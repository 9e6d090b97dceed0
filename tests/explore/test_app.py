"""The routes, asked within this process, as a notebook asks them."""

import asyncio
import json
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from heedmap.errors import MissingExtraError
from heedmap.explore.app import make_app
from heedmap.explore.asgi import App, Message
from heedmap.explore.desk import Desk
from heedmap.explore.scene import Media

from .serving import PATIENCE_SECONDS, GatedExplorer, ask


@pytest.fixture
def explorer() -> GatedExplorer:
    explorer = GatedExplorer(media=(Media("text", "text/html", "words", words="为 <b>"),))
    explorer.gate.set()
    return explorer


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "index.html").write_text("<title>map</title>")
    (tmp_path / "map.js").write_text("export {};")
    (tmp_path / "parts" / "style.css").write_text("p {}")
    return tmp_path


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk(max_waiting=300)
    yield desk
    desk.close()


@pytest.fixture
def app(explorer: GatedExplorer, desk: Desk, page: Path) -> App:
    return make_app(explorer, desk, page=page)


def posted(app: App, asked: Any) -> Any:
    body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    return ask(app, "/tiles", method="POST", body=body)


def test_what_there_is_to_see(app: App, explorer: GatedExplorer) -> None:
    assert ask(app, "/description").json == explorer.description()
    axis = ask(app, "/axes/0").json
    assert list(axis) == ["kind", "unit", "text", "labels", "spans", "frames"]
    assert axis["labels"][:2] == ["0", "1"]
    assert ask(app, "/progress/0/1").json == explorer.progress(0, 1)
    assert ask(app, "/health").json == {"status": "ok"}


def test_numbers_are_those_of_the_explorer(app: App, explorer: GatedExplorer) -> None:
    assert ask(app, "/cells/0/1/7/9").json == explorer.cell(0, 1, 7, 9)
    line = ask(app, "/rows/0/1/7?first=10&stop=300&bins=5").json
    assert line == explorer.line("rows", 0, 1, 7, 10, 300, 5)
    line = ask(app, "/columns/0/0/8?first=0&stop=30&bins=5").json
    assert line == explorer.line("columns", 0, 0, 8, 0, 30, 5)
    assert ask(app, "/rows/0/1/7/top?count=3").json == explorer.top("rows", 0, 1, 7, 3)
    assert ask(app, "/columns/0/1/7/top?count=3").json == explorer.top("columns", 0, 1, 7, 3)
    block = ask(app, "/blocks/0/1?rows=3:9&columns=0:300").json
    assert block == explorer.block(0, 1, range(3, 9), range(300))


def test_a_tile_and_a_thumbnail(app: App, explorer: GatedExplorer) -> None:
    answer = ask(app, "/tiles/0/1/max/1/1/0")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.body == explorer.tile(0, 1, "max", 1, 1, 0)
    assert ask(app, "/thumbnails/0/1").body == explorer.thumbnail(0, 1)


def test_many_tiles_come_each_behind_its_number(app: App, explorer: GatedExplorer) -> None:
    places = [[0, head, "mean", 1, x, y] for head in (0, 1) for x in (0, 1) for y in (0, 1)]
    answer = posted(app, {"tiles": places})
    assert answer.status == 200
    assert answer.tiles == {n: explorer.tile(*place) for n, place in enumerate(places)}
    assert posted(app, {"tiles": []}).tiles == {}
    assert len(posted(app, {"tiles": places * 32}).tiles) == 256


def test_a_number_does_not_wait_behind_tiles(app: App, explorer: GatedExplorer) -> None:
    explorer.gate.clear()
    places = [[0, 0, "mean", 1, x, y] for x in (0, 1) for y in (0, 1)]
    with ThreadPoolExecutor(1) as pool:
        tiles = pool.submit(posted, app, {"tiles": places})
        assert explorer.begun.wait(PATIENCE_SECONDS)
        assert ask(app, "/cells/0/0/1/1").status == 200
        assert ask(app, "/rows/0/0/1/top?count=1").status == 200
        explorer.gate.set()
        assert len(tiles.result().tiles) == 4


def test_a_tile_that_does_not_exist_has_no_bytes_among_others(app: App) -> None:
    places = [[0, 0, "mean", 0, 0, 0], [0, 0, "mean", 0, 5, 0], [9, 0, "median", 0, 0, 0]]
    tiles = posted(app, {"tiles": places}).tiles
    assert tiles[0].startswith(b"HMT1")
    assert (tiles[1], tiles[2]) == (b"", b"")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/tiles/0/0/mean/0/1/0", "x must be "),
        ("/tiles/0/0/median/0/0/0", "statistic must be mean, max or sum; got 'median'."),
        ("/tiles/1/0/mean/0/0/0", "layer must be 0 to 0; got 1."),
        ("/tiles/0/2/mean/0/0/0", "head must be 0 to 1; got 2."),
        ("/cells/0/0/300/0", "query must be 0 to 299; got 300."),
        ("/axes/999999999999999", "axis must be 0 to 0; got 999999999999999."),
        ("/media/1", "this address does not exist."),
        ("/media/a.wav", "this address does not exist."),
        ("/page/nothing.js", "this address does not exist."),
        ("/description/", "this address does not exist."),
        ("//description", "this address does not exist."),
        ("/tiles/0/0/mean/0/0", "this address does not exist."),
    ],
)
def test_what_does_not_exist(app: App, target: str, words: str) -> None:
    answer = ask(app, target)
    assert answer.status == 404
    assert answer.error.startswith(words)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/tiles/0/0/mean/0/0/-1", "y must be a whole number from 0; got '-1'."),
        ("/tiles/0.0/0/mean/0/0/0", "layer must be a whole number from 0; got '0.0'."),
        ("/tiles/0/0/mean/0/1e3/0", "x must be a whole number from 0; got '1e3'."),
        ("/cells/0/0/٣/0", "query must be a whole number from 0; got '٣'."),
        ("/cells/0/0/0/0\n", r"key must be a whole number from 0; got '0\n'."),
        (f"/axes/{'9' * 5000}", f"number must be a whole number from 0; got '{'9' * 40}'."),
        ("/rows/0/0/0?first=0&bins=1", "stop must be given once; got it 0 times."),
        ("/rows/0/0/0?first=0&first=0&stop=1&bins=1", "first must be given once; got it 2 times."),
        ("/rows/0/0/0?first=&stop=1&bins=1", "first must be a whole number from 0; got ''."),
        ("/rows/0/0/0?first=0&stop=1&bins=8193", "bins must be at most 8192; got 8193."),
        ("/rows/0/0/0/top?count=1025", "count must be at most 1024; got 1025."),
        ("/blocks/0/0?rows=3&columns=0:1", "rows must be first:stop; got '3'."),
        ("/blocks/0/0?rows=0:1&columns=0:x", "columns must be a whole number from 0; got 'x'."),
    ],
)
def test_what_is_malformed(app: App, target: str, words: str) -> None:
    answer = ask(app, target)
    assert (answer.status, answer.error) == (400, words)


WRONG_PLACE = "a tile must be [layer, head, statistic, zoom, x, y], whole numbers from 0"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (b"", "the body must be JSON; it is not."),
        (b"{", "the body must be JSON; it is not."),
        (b"\xff", "the body must be JSON; it is not."),
        (b"[" * 60_000, "the body must be JSON; it is not."),
        (b'{"tiles": [[' + b"9" * 5000 + b"]]}", "the body must be JSON; it is not."),
        ([], 'the body must be {"tiles": [...]}; it is something else.'),
        ({"tiles": None}, 'the body must be {"tiles": [...]}; it is something else.'),
        ({"tiles": [[0, 0, "mean", 0, 0, 0]] * 257}, "tiles must be at most 256; got 257."),
        ({"tiles": [[0, 0, "mean", 0, 0]]}, WRONG_PLACE),
        ({"tiles": [[0, 0, "mean", 0, 0, -1]]}, WRONG_PLACE),
        ({"tiles": [[0, 0, "mean", 0, 0, 0.0]]}, WRONG_PLACE),
        ({"tiles": [[0, 0, "mean", 0, 0, True]]}, WRONG_PLACE),
        ({"tiles": [[0, 0, "mean", 0, 0, None]]}, WRONG_PLACE),
        ({"tiles": [[0, 0, "mean", 0, 0, "0"]]}, WRONG_PLACE),
        ({"tiles": [[0, 0, 1, 0, 0, 0]]}, WRONG_PLACE),
        ({"tiles": [[0, 0, "mean", 0, 0, 10**15]]}, WRONG_PLACE),
        ({"tiles": [[0, 0, "mean", 0, 0, float("nan")]]}, WRONG_PLACE),
        ({"tiles": ["000000"]}, WRONG_PLACE),
    ],
)
def test_tiles_that_make_no_sense(
    app: App, explorer: GatedExplorer, asked: Any, words: str
) -> None:
    answer = posted(app, asked)
    assert answer.status == 400
    assert answer.error.startswith(words)
    assert explorer.asked == []


def test_other_methods_are_refused(app: App) -> None:
    for method, target in (("POST", "/description"), ("GET", "/tiles"), ("PUT", "/")):
        answer = ask(app, target, method=method)
        assert (answer.status, answer.error) == (405, "Method Not Allowed")
        assert "allow" in answer.headers


def test_the_page_is_what_its_folder_holds(app: App, page: Path) -> None:
    answer = ask(app, "/")
    assert answer.body == b"<title>map</title>"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert ask(app, "/page/map.js").headers["content-type"] == "text/javascript; charset=utf-8"
    assert ask(app, "/page/parts/style.css").body == b"p {}"
    for path in ("../secret", "parts/../map.js", "parts", "", "/map.js", "map.js\0", str(page)):
        assert ask(app, f"/page/{path}").status == 404
    # What comes later is not of this page.
    (page / "secret.txt").write_text("x")
    assert ask(app, "/page/secret.txt").status == 404


def test_the_browser_keeps_a_file_of_the_page_until_it_changes(app: App) -> None:
    etag = ask(app, "/page/map.js").headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = ask(app, "/page/map.js", headers=[(b"if-none-match", known.encode())])
        assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", etag)
    answer = ask(app, "/page/map.js", headers=[(b"if-none-match", b'"other"')])
    assert answer.body == b"export {};"


def test_words_are_plain_text_whatever_they_are_said_to_be(app: App) -> None:
    answer = ask(app, "/media/0")
    assert answer.body.decode() == "为 <b>"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_more_than_may_wait_is_asked_to_come_back(
    app: App, explorer: GatedExplorer, desk: Desk
) -> None:
    explorer.gate.clear()

    async def run() -> None:
        with desk.take([lambda _: None] * 300):
            body = b'{"tiles": [[0, 0, "mean", 0, 0, 0]]}'
            answer = await asyncio.to_thread(posted, app, body)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert answer.error == "too much is asked for at once; ask again."

    # Both threads are kept, so that everything waits.
    async def keep() -> None:
        with desk.take([lambda stop: explorer.tile(0, 0, "mean", 0, 0, 0, stop)] * 2):
            while len(explorer.asked) < 2:
                await asyncio.sleep(0.002)
            await run()

    asyncio.run(keep())


@pytest.mark.parametrize("target", ["/tiles/0/0/mean/0/0/0", "/tiles"])
def test_a_client_that_leaves_stops_its_computation(
    app: App, explorer: GatedExplorer, target: str
) -> None:
    explorer.gate.clear()
    body = json.dumps({"tiles": [[0, 0, "mean", 1, 0, 0]] * 50}).encode()
    method = "POST" if target == "/tiles" else "GET"
    scope = {
        "type": "http",
        "method": method,
        "path": target,
        "query_string": b"",
        "headers": [],
    }

    async def run() -> None:
        left = asyncio.Event()
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(_: Message) -> None:
            pass

        async with asyncio.timeout(PATIENCE_SECONDS):
            answering = asyncio.create_task(app(scope, receive, send))
            assert await asyncio.to_thread(explorer.begun.wait, PATIENCE_SECONDS)
            left.set()
            await answering

    asyncio.run(run())
    assert explorer.stopped.wait(PATIENCE_SECONDS)
    assert len(explorer.asked) <= 2


def test_an_error_of_ours_is_one_line_and_the_threads_go_on(
    app: App, explorer: GatedExplorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> bytes:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(explorer, "thumbnail", broken)
    for _ in range(4):
        answer = ask(app, "/thumbnails/0/0")
        assert (answer.status, answer.error) == (500, "ZeroDivisionError: two lines")
    assert ask(app, "/tiles/0/0/mean/0/0/0").status == 200


def test_a_sentence_for_people_comes_without_the_name_of_its_class(
    app: App, explorer: GatedExplorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> bytes:
        raise MissingExtraError("av", "media")

    monkeypatch.setattr(explorer, "thumbnail", missing)
    answer = ask(app, "/thumbnails/0/0")
    assert (answer.status, answer.error) == (500, str(MissingExtraError("av", "media")))


def test_text_that_is_no_character_does_not_break_the_answer(
    app: App, explorer: GatedExplorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "description", lambda: {"name": "a\udcff"})
    assert ask(app, "/description").json == {"name": "a?"}


def test_the_header_of_each_tile_is_little_endian(app: App) -> None:
    body = posted(app, {"tiles": [[0, 0, "mean", 0, 0, 0]]}).body
    assert struct.unpack_from("<II4s", body) == (0, len(body) - 8, b"HMT1")


def test_without_starlette(
    explorer: GatedExplorer, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(MissingExtraError, match=r"starlette must be installed.*heedmap\[explore\]"):
        make_app(explorer, desk)
