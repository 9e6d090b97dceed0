"""A server that runs, and clients with raw sockets that mean no good: refused, and it goes on."""

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heedmap.explore.guard import HEADERS
from heedmap.explore.limits import Limits
from heedmap.explore.running import Running
from heedmap.explore.scene import Media

from .serving import PATIENCE_SECONDS, Answer, Client, GatedExplorer, read_answer

LIMITS = Limits(head_seconds=0.3, body_seconds=0.3, unread_seconds=0.3, max_connections=80)
SOUND = bytes(range(256)) * 40_000  # 10 MB: more than lies in the buffers of a connection
TILE = '[0, 0, "mean", 0, 0, 0]'


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> GatedExplorer:
    path = tmp_path_factory.mktemp("media") / "sound.wav"
    path.write_bytes(SOUND)
    return GatedExplorer(media=(Media("audio", "audio/wav", "sound.wav", path),))


@pytest.fixture(scope="module")
def server(explorer: GatedExplorer) -> Iterator[Client]:
    with Running(explorer, limits=LIMITS) as running:
        yield Client(running).open()


@pytest.fixture
def client(server: Client, explorer: GatedExplorer) -> Iterator[Client]:
    """A client whose server must answer as ever when the test is over."""
    explorer.gate.set()
    explorer.tile_bytes = 0
    explorer.asked.clear()
    explorer.begun.clear()
    explorer.stopped.clear()
    yield server
    explorer.gate.set()
    assert server.is_healthy()
    assert server.get("/tiles/0/0/mean/0/0/0").status == 200


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    return holds()


# Heads and addresses


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["evil.example"], 403),
        (["evil.example:{port}"], 403),
        (["127.0.0.1"], 403),
        (["127.0.0.1:1"], 403),
        (["127.0.0.1:{port}1"], 403),
        (["127.0.0.1:{port}@evil.example"], 403),
        (["127.0.0.1:{port}", "127.0.0.1:{port}"], 400),
        (["127.0.0.1:{port}", "evil.example"], 400),
        (["evil.example", "127.0.0.1:{port}"], 400),
        ([], 400),
        ([""], 403),
        (["localhost:{port}"], 200),
    ],
)
def test_hosts(client: Client, hosts: list[str], status: int) -> None:
    for target in ("/health", "/description", f"/open?token={client.token}", "/"):
        lines = [f"GET {target} HTTP/1.1", *(f"Host: {host}" for host in hosts)]
        lines += [f"Cookie: {client.cookie}", "", ""]
        answer = client.raw("\r\n".join(lines).replace("{port}", str(client.port)))
        assert answer is not None
        if status != 200:
            assert answer.status == status
            assert answer.error
        elif target == "/health":
            assert answer.status == 200


@pytest.mark.parametrize(
    "target",
    ["http://evil.example/health", "http://{host}/health", "*", "evil.example:80", "health"],
)
def test_addresses_with_a_host_in_them(client: Client, target: str) -> None:
    for method in ("GET", "OPTIONS", "CONNECT"):
        answer = client.raw(client.head(target.replace("{host}", client.host), method) + "\r\n")
        # The parser refuses some, and hangs up after what it takes for the start of a tunnel.
        assert answer is None or answer.status in (400, 405)


def test_http_1_0_is_answered_under_the_same_rules(client: Client) -> None:
    answer = client.raw("GET /health HTTP/1.0\r\n\r\n")
    assert answer is not None
    assert answer.status == 400
    head = client.head("/description").replace("HTTP/1.1", "HTTP/1.0")
    with client.connect() as connection:
        connection.sendall(head.encode() + b"\r\n")
        answer = read_answer(connection)
        assert answer is not None
        assert answer.status == 200
        assert connection.recv(1) == b""


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /health",
        "GET /health HTTP/9.9",
        "GET /health HTTP/2.0",
        "GET /he alth HTTP/1.1",
        "GET /health\0 HTTP/1.1",
        "GET /h\xe9alth HTTP/1.1",
        "get /health HTTP/1.1",
        "FETCH /health HTTP/1.1",
        "PRI * HTTP/2.0",
        "\x16\x03\x01\x02\x00\x01",
        "",
        " ",
        "\0",
    ],
)
def test_request_lines_that_are_none(client: Client, request_line: str) -> None:
    answer = client.raw(f"{request_line}\r\nHost: {client.host}\r\n\r\n")
    assert answer is None or answer.status in (400, 405)
    if answer is not None:
        assert answer.headers["connection"] == "close"
        assert answer.error


@pytest.mark.parametrize(
    "lines",
    [
        ["Host : x"],
        ["X: a", " folded: b"],
        ["no colon"],
        ["X\0: a"],
        ["X: a\0b"],
        [": a"],
        ["Content-Length: 3", "Content-Length: 4"],
        ["Content-Length: -1"],
        ["Content-Length: 1e3"],
        ["Content-Length: 99999999999999999999999"],
        ["Content-Length: 3", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x"],
        ["Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings"],
    ],
)
def test_headers_that_make_no_sense(client: Client, lines: list[str]) -> None:
    answer = client.raw(client.head("/description", "GET", *lines) + "\r\n")
    assert answer is not None
    assert answer.status == 400
    assert answer.error


@pytest.mark.parametrize("method", ["PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "PROPFIND"])
def test_methods(client: Client, method: str) -> None:
    answer = client.get("/description", method=method)
    assert answer.status == 405
    assert client.cookie not in answer.body.decode()


# The token and the cookie


def test_the_token_is_good_once(client: Client) -> None:
    for target in (f"/open?token={client.token}", "/open", "/open?token=", "/open?token=x"):
        answer = client.raw(f"GET {target} HTTP/1.1\r\nHost: {client.host}\r\n\r\n")
        assert answer is not None
        assert answer.status == 401
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/page/page.js",
        "/description",
        "/axes/0",
        "/tiles/0/0/mean/0/0/0",
        "/thumbnails/0/0",
        "/media/0",
        "/nothing",
        "/health/",
        "/open/",
        "/health/../description",
        "//health",
        "/%6Fpen",
    ],
)
def test_nothing_is_seen_without_the_cookie(
    client: Client, explorer: GatedExplorer, target: str
) -> None:
    name = client.cookie.partition("=")[0]
    for cookie in (
        "",
        f"{name}=",
        f"{name}=x",
        client.cookie[:-1],
        client.token,
        f"x{client.cookie}",
    ):
        head = f"GET {target} HTTP/1.1\r\nHost: {client.host}\r\nCookie: {cookie}\r\n\r\n"
        answer = client.raw(head)
        assert answer is not None
        assert answer.status == 401
    assert explorer.asked == []


# Paths


@pytest.mark.parametrize("folder", ["/page/", "/media/", "/", "/page/page.js/"])
@pytest.mark.parametrize(
    "path",
    [
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "%2e%2e%2fapp.py",
        "%252e%252e%252fapp.py",
        "..\\app.py",
        "..%5capp.py",
        "....//app.py",
        "./page.js",
        "/page.js",
        "//page.js",
        "/etc/passwd",
        "../../../../../../../../etc/passwd",
        "%00",
        "page.js%00",
        "page.js%00.html",
        "page.js%0d%0aX-Own:%201",
        "page.js.",
        "PAGE.JS",
        "%c0%ae%c0%ae/app.py",
        "%ff",
        "sound.wav",
        "00",
        "-1",
        "0/",
        "0/../0",
        ".",
        "..",
        "C:/windows/win.ini",
        "file:///etc/passwd",
        "~",
        "*",
    ],
)
def test_no_path_leads_to_a_file(client: Client, folder: str, path: str) -> None:
    answer = client.get(folder + path)
    assert answer.status in (400, 404), answer.body[:200]
    assert answer.error
    assert "x-own" not in answer.headers


# What other pages could send


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "", None])
def test_posts_of_other_origins(
    client: Client, explorer: GatedExplorer, origin: str | None
) -> None:
    body = b'{"tiles": [[0, 0, "mean", 0, 0, 0]]}'
    lines = [f"Content-Length: {len(body)}", "Content-Type: text/plain"]
    lines += [] if origin is None else [f"Origin: {origin}"]
    answer = client.raw((client.head("/tiles", "POST", *lines) + "\r\n").encode() + body)
    assert answer is not None
    assert answer.status == 403
    assert explorer.asked == []


def test_no_answer_lets_other_pages_read_it(client: Client) -> None:
    answers = [
        client.get("/description", "Origin: http://evil.example"),
        client.get("/", "Origin: null"),
        client.get("/media/0", "Range: bytes=0-1"),
        client.get("/nothing"),
        client.post(b"{"),
        client.get(
            "/description",
            "Origin: http://evil.example",
            "Access-Control-Request-Method: POST",
            method="OPTIONS",
        ),
    ]
    for answer in answers:
        assert not [name for name in answer.header_names if name.startswith("access-control")]
        assert not {"server", "x-powered-by"} & set(answer.header_names)
        for name, value in HEADERS:
            assert answer.header_names.count(name.decode()) == 1
            assert answer.headers[name.decode()] == value.decode()


# Too much


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
def test_bodies_that_are_too_long(client: Client, explorer: GatedExplorer, size: int) -> None:
    answer = client.raw(client.posting(b" " * size))
    assert answer is None or answer.status == 413
    # As chunks, which do not say beforehand how many there will be; each a byte, at that.
    lines = (f"Origin: {client.origin}", "Transfer-Encoding: chunked")
    head = client.head("/tiles", "POST", *lines) + "\r\n"
    for chunk in (b"1000\r\n" + b" " * 4096 + b"\r\n", b"1;" + b"x" * 90 + b"\r\n \r\n"):
        answer = client.raw(head.encode() + chunk * (min(size, 10**6) // 100))
        assert answer is None or answer.status in (400, 413)
    assert explorer.asked == []


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
def test_bodies_that_make_no_sense(client: Client, explorer: GatedExplorer, body: str) -> None:
    answer = client.post(body.encode("latin-1"))
    assert answer.status == 400
    assert answer.error
    assert explorer.asked == []


def test_numbers_of_any_size(client: Client) -> None:
    for number in ("9" * 15, "9" * 4000, "-1", "1e9", "0x1", "1_0", "+1", " 1", "%31%30.", "٣"):
        answer = client.get(f"/tiles/0/0/mean/0/{number.encode().decode('latin-1')}/0")
        assert answer.status in (400, 404)
        answer = client.get(f"/rows/0/0/0?first=0&stop=1&bins={number}".encode().decode("latin-1"))
        assert answer.status in (400, 404)


def test_requests_on_top_of_others(client: Client, explorer: GatedExplorer) -> None:
    explorer.gate.clear()
    one = (client.head("/tiles/0/0/mean/0/0/0") + "\r\n").encode()
    with client.connect() as connection:
        connection.sendall(one)
        assert explorer.begun.wait(PATIENCE_SECONDS)
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(one * 100)
            assert connection.recv(1) == b""
    assert explorer.stopped.wait(PATIENCE_SECONDS)
    assert len(explorer.asked) == 1


def test_thousands_of_tiles_at_once(client: Client, explorer: GatedExplorer) -> None:
    explorer.gate.clear()
    explorer.tile_bytes = 1000
    body = ('{"tiles": [' + ", ".join([TILE] * 256) + "]}").encode()
    with contextlib.ExitStack() as stack:
        asking = [stack.enter_context(client.connect()) for _ in range(20)]
        for connection in asking:
            connection.sendall(client.posting(body))
            # So that it is the later ones that are refused.
            time.sleep(0.005)
        refused = [read_answer(connection) for connection in asking[-10:]]
        assert {answer.status for answer in refused if answer} == {503}
        assert {answer.headers["retry-after"] for answer in refused if answer} == {"1"}
        assert client.is_healthy()
        explorer.gate.set()
        with ThreadPoolExecutor(10) as readers:
            served = list(readers.map(read_answer, asking[:10]))
        full = [answer for answer in served if answer and answer.status == 200]
        assert len(full) >= 4
        for answer in full:
            assert answer.tiles == dict.fromkeys(range(256), bytes(1000))


def test_tiles_that_nobody_reads_are_not_made(client: Client, explorer: GatedExplorer) -> None:
    explorer.tile_bytes = 256 * 1024
    body = ('{"tiles": [' + ", ".join([TILE] * 100) + "]}").encode()
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", client.port))
            connection.sendall(client.posting(body))
        # After a while nobody waits for them to read any more.
        time.sleep(2 * LIMITS.unread_seconds)
        assert client.is_healthy()
        made = len(explorer.asked)
        # Per connection: 8 that wait, one that is being sent, and what the system keeps (4 MB).
        assert 6 <= made <= 6 * 40
    time.sleep(0.05)
    assert len(explorer.asked) == made


# Slow clients, and those that leave


@pytest.mark.parametrize(
    "head", ["", "\r\n\r\n", "GET /health HTTP/1.1\r\nX: ", "GET /", "POST /tiles HTTP/1.1\r\n"]
)
def test_a_head_that_drips(client: Client, head: str) -> None:
    assert seconds_until_hung_up(client, head.encode(), b"a") < 2 * LIMITS.head_seconds + 1


def test_a_body_that_drips(client: Client) -> None:
    lines = (f"Origin: {client.origin}", "Content-Length: 1000")
    head = client.head("/tiles", "POST", *lines) + "\r\n"
    assert seconds_until_hung_up(client, head.encode(), b" ") < 2 * LIMITS.body_seconds + 1


def test_nothing_but_empty_lines(client: Client) -> None:
    assert seconds_until_hung_up(client, b"", b"\r\n") < 2 * LIMITS.head_seconds + 1
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
        assert time.monotonic() - start < 2 * LIMITS.head_seconds + 1


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
        for _ in range(LIMITS.max_connections + 20):
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
        time.sleep(2 * LIMITS.unread_seconds)
        got = 0
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 20):
                got += len(piece)
        assert got < len(SOUND)


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("tiles", [1, 200])
def test_a_client_that_leaves_in_mid_computation(
    client: Client, explorer: GatedExplorer, how: str, tiles: int
) -> None:
    explorer.gate.clear()
    body = ('{"tiles": [' + ", ".join([TILE] * tiles) + "]}").encode()
    with client.connect() as connection:
        connection.sendall(client.posting(body))
        assert explorer.begun.wait(PATIENCE_SECONDS)
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half":
            connection.shutdown(socket.SHUT_WR)
            assert explorer.stopped.wait(PATIENCE_SECONDS)
    assert explorer.stopped.wait(PATIENCE_SECONDS)
    assert len(explorer.asked) <= 2


@pytest.mark.parametrize(
    "target",
    ["/tiles/0/0/mean/0/0/0", "/media/0", "/description", "/rows/0/0/0?first=0&stop=300&bins=9"],
)
def test_clients_that_leave_at_once(client: Client, target: str) -> None:
    for _ in range(30):
        with client.connect() as connection:
            connection.sendall((client.head(target) + "\r\n").encode())


def test_a_client_that_leaves_its_body_unsent(client: Client, explorer: GatedExplorer) -> None:
    for _ in range(10):
        with client.connect() as connection:
            connection.sendall(client.posting(b'{"tiles": [[0, 0, "mean", 0, 0, 0]]}')[:-5])
    assert client.is_healthy()
    assert explorer.asked == []


# Ranges, files and threads


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
