"""Raw sockets, a server that runs, and requests of those who may not ask: refused."""

import pytest

from heedmap.explore.guard import HEADERS

from .serving import Client, GatedExplorer, read_answer


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
    client: Client, gated: GatedExplorer, target: str
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
    assert gated.asked == []


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


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "", None])
def test_posts_of_other_origins(client: Client, gated: GatedExplorer, origin: str | None) -> None:
    body = b'{"tiles": [[0, 0, "mean", 0, 0, 0]]}'
    lines = [f"Content-Length: {len(body)}", "Content-Type: text/plain"]
    lines += [] if origin is None else [f"Origin: {origin}"]
    answer = client.raw((client.head("/tiles", "POST", *lines) + "\r\n").encode() + body)
    assert answer is not None
    assert answer.status == 403
    assert gated.asked == []


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
