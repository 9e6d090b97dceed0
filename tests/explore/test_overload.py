"""Too much, too slow, gone in the middle, changed underneath: the server goes on."""

import contextlib
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heedmap.explore.limits import Limits
from heedmap.explore.running import Running
from heedmap.explore.scene import Media

from .serving import PATIENCE_SECONDS, SHORT, SOUND, Answer, Client, GatedExplorer, read_answer

TILE = '[0, 0, "mean", 0, 0, 0]'


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    return holds()


@pytest.mark.parametrize(
    "head",
    [
        "GET /{long} HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: {host}\r\nX: {long}\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: {host}\r\n{long}: x\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: {host}\r\nCookie: {long}",
        "GET /health HTTP/1.1\r\nHost: {host}\r\n{many}\r\n",
        "GET /health HTTP/1.1\r\nHost: {host}\r\n{many}",
        "GET /{long}",
        "{long}",
    ],
)
@pytest.mark.parametrize("size", [80_000, 2_000_000])
def test_heads_without_end(client: Client, head: str, size: int) -> None:
    filled = head.replace("{host}", client.host)
    filled = filled.replace("{long}", "a" * size).replace("{many}", "a: b\r\n" * (size // 6))
    answer = client.raw(filled)
    # Whoever sends megabytes is hung up on before the end, and may miss the answer for that.
    assert answer is None or answer.status in (400, 431)
    if answer is not None and answer.status == 431:
        assert answer.error == "address and headers must be at most 65536 bytes; got more."


def test_a_head_that_is_just_not_too_long(client: Client) -> None:
    assert client.get("/description", f"X: {'a' * 64_000}").status == 200


@pytest.mark.parametrize("size", [64 * 1024 + 1, 10**6, 10**7])
def test_bodies_that_are_too_long(client: Client, gated: GatedExplorer, size: int) -> None:
    answer = client.raw(client.posting(b" " * size))
    assert answer is None or answer.status == 413
    # As chunks, which do not say beforehand how many there will be; each a byte, at that.
    lines = (f"Origin: {client.origin}", "Transfer-Encoding: chunked")
    head = client.head("/tiles", "POST", *lines) + "\r\n"
    for chunk in (b"1000\r\n" + b" " * 4096 + b"\r\n", b"1;" + b"x" * 90 + b"\r\n \r\n"):
        answer = client.raw(head.encode() + chunk * (min(size, 10**6) // 100))
        assert answer is None or answer.status in (400, 413)
    assert gated.asked == []


def test_a_body_of_trailers(client: Client) -> None:
    lines = (f"Origin: {client.origin}", "Transfer-Encoding: chunked")
    head = client.head("/tiles", "POST", *lines) + "\r\n"
    body = b'd\r\n{"tiles": []}\r\n0\r\n'
    answer = client.raw(head.encode() + body + b"Host: evil.example\r\nCookie: x\r\n\r\n")
    assert answer is not None
    assert answer.status == 200
    answer = client.raw(head.encode() + body + b"X: y\r\n" * 400_000)
    assert answer is None or answer.status in (400, 413)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_where_none_belongs(client: Client, method: str) -> None:
    head = client.head("/description", method, "Content-Length: 100000") + "\r\n"
    answer = client.raw(head.encode() + b"x" * 100_000)
    assert answer is None or answer.status == 413


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        "{",
        '{"tiles": 1}',
        '{"tiles": [' + ", ".join([TILE] * 257) + "]}",
        '{"tiles": [[0, 0, "mean", 0, 0, -1]]}',
        '{"tiles": [[0, 0, "mean", 0, 0, 0.5]]}',
        '{"tiles": [[true, 0, "mean", 0, 0, 0]]}',
        '{"tiles": [[0, 0, "mean", 0, 0, 1e400]]}',
        '{"tiles": [[0, 0, "mean", 0, 0, ' + "9" * 10_000 + "]]}",
        '{"tiles": [[0, 0, ["mean"], 0, 0, 0]]}',
        "[" * 60_000,
        '{"tiles":' * 6_000,
        "\xff\xfe",
        '{"tiles": [[0, 0, "\\ud800", 0, 0, 0]]',
    ],
)
def test_bodies_that_make_no_sense(client: Client, gated: GatedExplorer, body: str) -> None:
    answer = client.post(body.encode("latin-1"))
    assert answer.status == 400
    assert answer.error
    assert gated.asked == []


def test_numbers_of_any_size(client: Client) -> None:
    for number in ("9" * 15, "9" * 4000, "-1", "1e9", "0x1", "1_0", "+1", " 1", "%31%30.", "٣"):
        answer = client.get(f"/tiles/0/0/mean/0/{number.encode().decode('latin-1')}/0")
        assert answer.status in (400, 404)
        answer = client.get(f"/rows/0/0/0?first=0&stop=1&bins={number}".encode().decode("latin-1"))
        assert answer.status in (400, 404)


def test_requests_on_top_of_others(client: Client, gated: GatedExplorer) -> None:
    gated.gate.clear()
    one = (client.head("/tiles/0/0/mean/0/0/0") + "\r\n").encode()
    with client.connect() as connection:
        connection.sendall(one)
        assert gated.begun.wait(PATIENCE_SECONDS)
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(one * 100)
            assert connection.recv(1) == b""
    assert gated.stopped.wait(PATIENCE_SECONDS)
    assert len(gated.asked) == 1


def test_thousands_of_tiles_at_once(client: Client, gated: GatedExplorer) -> None:
    gated.gate.clear()
    gated.tile_bytes = 1000
    body = ('{"tiles": [' + ", ".join([TILE] * 256) + "]}").encode()
    with contextlib.ExitStack() as stack:
        asking = [stack.enter_context(client.connect()) for _ in range(20)]
        for connection in asking:
            connection.sendall(client.posting(body))
        # Those that are refused are answered while the others wait.
        end = time.monotonic() + 20
        while len(select.select(asking, [], [], 0.05)[0]) < 10:
            assert time.monotonic() < end
        assert client.is_healthy()
        gated.gate.set()
        with ThreadPoolExecutor(20) as readers:
            answers = [answer for answer in readers.map(read_answer, asking) if answer]
        refused = [answer for answer in answers if answer.status == 503]
        assert len(refused) >= 10
        assert {answer.headers["retry-after"] for answer in refused} == {"1"}
        full = [answer for answer in answers if answer.status == 200]
        assert len(full) >= 4
        for answer in full:
            assert answer.tiles == dict.fromkeys(range(256), bytes(1000))


def test_tiles_that_nobody_reads_are_not_made(client: Client, gated: GatedExplorer) -> None:
    gated.tile_bytes = 256 * 1024
    body = ('{"tiles": [' + ", ".join([TILE] * 100) + "]}").encode()
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", client.port))
            connection.sendall(client.posting(body))
        # After a while nobody waits for them to read any more.
        time.sleep(2 * SHORT.unread_seconds)
        assert client.is_healthy()
        made = len(gated.asked)
        # Per connection: 8 that wait, one that is being sent, and what the system keeps (4 MB).
        assert 6 <= made <= 6 * 40
    time.sleep(0.05)
    assert len(gated.asked) == made


@pytest.mark.parametrize(
    "head", ["", "\r\n\r\n", "GET /health HTTP/1.1\r\nX: ", "GET /", "POST /tiles HTTP/1.1\r\n"]
)
def test_a_head_that_drips(client: Client, head: str) -> None:
    assert seconds_until_hung_up(client, head.encode(), b"a") < 2 * SHORT.head_seconds + 1


def test_a_body_that_drips(client: Client) -> None:
    lines = (f"Origin: {client.origin}", "Content-Length: 1000")
    head = client.head("/tiles", "POST", *lines) + "\r\n"
    assert seconds_until_hung_up(client, head.encode(), b" ") < 2 * SHORT.body_seconds + 1


def test_nothing_but_empty_lines(client: Client) -> None:
    assert seconds_until_hung_up(client, b"", b"\r\n") < 2 * SHORT.head_seconds + 1
    # Behind an answer, too, where the connection waits for the next request.
    first = (client.head("/description") + "\r\n").encode()
    with client.connect() as connection:
        connection.sendall(first)
        assert read_answer(connection) is not None
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - start < PATIENCE_SECONDS:
                connection.sendall(b"\r\n")
                time.sleep(0.03)
        assert time.monotonic() - start < 2 * SHORT.head_seconds + 1


def seconds_until_hung_up(client: Client, first: bytes, drop: bytes) -> float:
    start = time.monotonic()
    with client.connect() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(first)
        while time.monotonic() - start < PATIENCE_SECONDS:
            connection.sendall(drop)
            time.sleep(0.03)
    return time.monotonic() - start


def test_many_slow_clients_do_not_keep_others_out_for_long(client: Client) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(SHORT.max_connections + 20):
            with contextlib.suppress(ConnectionError):
                connection = stack.enter_context(client.connect())
                connection.sendall(b"GET /health HTTP/1.1\r\nX: ")
        assert eventually(client.is_healthy)


def test_an_answer_that_is_not_read(client: Client) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", client.port))
        connection.settimeout(PATIENCE_SECONDS)
        connection.sendall((client.head("/media/0") + "\r\n").encode())
        time.sleep(2 * SHORT.unread_seconds)
        got = 0
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 20):
                got += len(piece)
        assert got < len(SOUND)


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("tiles", [1, 200])
def test_a_client_that_leaves_in_mid_computation(
    client: Client, gated: GatedExplorer, how: str, tiles: int
) -> None:
    gated.gate.clear()
    body = ('{"tiles": [' + ", ".join([TILE] * tiles) + "]}").encode()
    with client.connect() as connection:
        connection.sendall(client.posting(body))
        assert gated.begun.wait(PATIENCE_SECONDS)
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half":
            connection.shutdown(socket.SHUT_WR)
            assert gated.stopped.wait(PATIENCE_SECONDS)
    assert gated.stopped.wait(PATIENCE_SECONDS)
    assert len(gated.asked) <= 2


@pytest.mark.parametrize(
    "target",
    ["/tiles/0/0/mean/0/0/0", "/media/0", "/description", "/rows/0/0/0?first=0&stop=300&bins=9"],
)
def test_clients_that_leave_at_once(client: Client, target: str) -> None:
    for _ in range(30):
        with client.connect() as connection:
            connection.sendall((client.head(target) + "\r\n").encode())


def test_a_client_that_leaves_its_body_unsent(client: Client, gated: GatedExplorer) -> None:
    for _ in range(10):
        with client.connect() as connection:
            connection.sendall(client.posting(b'{"tiles": [[0, 0, "mean", 0, 0, 0]]}')[:-5])
    assert client.is_healthy()
    assert gated.asked == []


@pytest.mark.parametrize(
    "ranges",
    [
        "bytes=0-" + "9" * 5000,
        "bytes=-" + "9" * 5000,
        "bytes=" + ",".join(["0-"] * 3000),
        "bytes=" + ",".join(f"{n}-{n}" for n in range(1000)),
        "bytes=99999999-",
        "bytes=--1",
        "bytes=1-0",
        "bytes=0-0, bytes=1-1",
        "bytes=0x0-0x1",
        "none=0-1",
        "bytes=\xb9-\xb2",
        "",
    ],
)
def test_ranges(client: Client, ranges: str) -> None:
    answer = client.get("/media/0", f"Range: {ranges}")
    assert answer.status in (200, 206, 400, 416)
    assert len(answer.body) <= len(SOUND)
    if answer.status >= 400:
        assert answer.error


def test_a_sound_is_served_in_parts(client: Client) -> None:
    answer = client.get("/media/0", "Range: bytes=1000000-1000009")
    assert (answer.status, answer.body) == (206, SOUND[1_000_000:1_000_010])
    assert client.get("/media/0").body == SOUND


def test_a_file_that_changes_while_it_is_sent_is_broken_off(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(SOUND)
    media = (Media("audio", "audio/wav", "sound.wav", path),)
    with Running(GatedExplorer(media=media)) as running:
        client = Client(running).open()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", client.port))
            connection.settimeout(PATIENCE_SECONDS)
            connection.sendall((client.head("/media/0") + "\r\n").encode())
            head = connection.recv(1024)
            assert head.startswith(b"HTTP/1.1 200 OK")
            path.write_bytes(b"\xee" * len(SOUND))
            body = head.partition(b"\r\n\r\n")[2]
            with contextlib.suppress(ConnectionError):
                while piece := connection.recv(1 << 20):
                    body += piece
        assert len(body) < len(SOUND)
        assert SOUND.startswith(body)
        answer = client.get("/media/0")
        assert answer.status == 409
        path.unlink()
        assert client.get("/media/0").status == 410
        assert client.is_healthy()


def test_requests_at_once_are_bounded() -> None:
    gated = GatedExplorer()
    with Running(gated, limits=Limits(max_requests=2)) as running:
        client = Client(running).open()
        answers: list[Answer] = []

        def ask() -> None:
            answers.append(client.get("/tiles/0/0/mean/0/0/0"))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: len(gated.asked) == 2)
        third = client.get("/description")
        assert (third.status, third.headers["retry-after"]) == (503, "1")
        assert client.is_healthy()
        gated.gate.set()
        for thread in threads:
            thread.join()
        assert [answer.status for answer in answers] == [200, 200]
        assert client.get("/description").status == 200
        assert json.loads(client.get("/description").body)["schema"] == 1
