"""Who is let through, within this process: hosts, origins, the token and its cookie, sizes."""

import asyncio

import pytest

from heedmap.explore.asgi import App, Message, Receive, Scope, Send, send_whole
from heedmap.explore.guard import HEADERS, Guard
from heedmap.explore.limits import Limits

from .serving import Answer, ask

PORT = 8123
HOST = (b"host", b"127.0.0.1:8123")
ORIGIN = (b"origin", b"http://127.0.0.1:8123")
LINK = (b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate")


async def echo(_: Scope, receive: Receive, send: Send) -> None:
    body = (await receive())["body"]
    await send_whole(send, 200, [(b"x-own", b"1")], body)


def guarded(app: App = echo, *, port: int = PORT, any_address: bool = False) -> Guard:
    limits = Limits(max_requests=1, max_body_bytes=100)
    hosts = {"127.0.0.1", "localhost", "[::1]", "Box.local"}
    return Guard(app, hosts=hosts, port=port, any_address=any_address, limits=limits)


def opened(guard: Guard, *headers: tuple[bytes, bytes]) -> Answer:
    return ask(guard, f"/open?token={guard.token}", headers=[HOST, *headers])


def cookie_of(guard: Guard) -> tuple[bytes, bytes]:
    return b"cookie", opened(guard).headers["set-cookie"].partition(";")[0].encode()


def test_the_token_is_exchanged_for_a_strict_cookie() -> None:
    guard = guarded()
    assert len(guard.token) >= 43  # 32 bytes
    assert guard.token != guarded().token
    answer = opened(guard)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    name, _, rest = answer.headers["set-cookie"].partition("=")
    value, *flags = rest.split("; ")
    assert name == "heedmap-8123"
    assert flags == ["HttpOnly", "SameSite=Strict", "Path=/"]
    assert len(value) >= 43
    assert value != guard.token
    cookie = (b"cookie", f"a=b; {name}={value}; c".encode())
    assert ask(guard, "/description", headers=[HOST, cookie]).status == 200


def test_the_token_is_good_once_but_its_owner_may_use_the_address_again() -> None:
    guard = guarded()
    cookie = cookie_of(guard)
    again = opened(guard)
    assert again.status == 401
    assert again.headers["content-type"] == "text/html; charset=utf-8"
    assert (
        again.headers["content-security-policy"]
        == dict(HEADERS)[b"content-security-policy"].decode()
    )
    for words in ("请重新运行 heedmap", "Start heedmap again"):
        assert words in again.body.decode()
    again = opened(guard, cookie)
    assert (again.status, again.headers["location"]) == (303, "/")
    assert "set-cookie" not in again.headers


def test_a_link_on_another_page_leads_on_from_our_own() -> None:
    guard = guarded()
    answer = opened(guard, *LINK)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert b'http-equiv="refresh" content="0; url=/"' in answer.body
    assert "set-cookie" in answer.headers
    # The browser keeps its cookie back, so whether it has one only shows at the next step.
    answer = opened(guard, *LINK)
    assert answer.status == 200
    assert "set-cookie" not in answer.headers
    wrong = ask(guard, "/open?token=wrong", headers=[HOST, *LINK])
    assert wrong.status == 401


@pytest.mark.parametrize("query", ["", "token=", "token=x", "token=%FF", "token=é", "x=y"])
def test_a_wrong_token_is_refused_and_spends_nothing(query: str) -> None:
    guard = guarded()
    assert ask(guard, f"/open?{query}", headers=[HOST]).status == 401
    assert ask(guard, f"/open?token={guard.token}", method="HEAD", headers=[HOST]).status == 405
    assert opened(guard).status == 303


@pytest.mark.parametrize(
    "cookie", [b"", b"heedmap-8123", b"heedmap-8123=", b"heedmap-8123=wrong", b"heedmap-8124={}"]
)
def test_without_the_cookie(cookie: bytes) -> None:
    guard = guarded()
    value = cookie_of(guard)[1].partition(b"=")[2]
    headers = [HOST, (b"cookie", cookie.replace(b"{}", value))]
    answer = ask(guard, "/", headers=headers)
    assert answer.status == 401
    assert answer.error.startswith("this map opens at the address that heedmap has printed, once;")
    assert "x-own" not in answer.headers
    assert ask(guard, "/health", headers=headers).status == 200
    # Who opens the page itself is a person, and reads.
    page = ask(guard, "/", headers=[*headers, (b"sec-fetch-mode", b"navigate")])
    assert (page.status, "x-own" in page.headers) == (401, False)
    assert page.headers["content-type"].startswith("text/html")
    assert "请重新运行 heedmap" in page.body.decode()


def test_a_cookie_of_the_same_name_from_elsewhere_does_no_harm() -> None:
    guard = guarded()
    name, own = cookie_of(guard)
    both = (name, b"heedmap-8123=other; " + own)
    assert ask(guard, "/", headers=[HOST, both]).status == 200
    assert ask(guard, "/", headers=[HOST, (name, b"heedmap-8123=x"), (name, own)]).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"127.0.0.1:8123", 200),
        (b"localhost:8123", 200),
        (b"LocalHost:8123", 200),
        (b"[::1]:8123", 200),
        (b"box.local:8123", 200),
        (b"127.0.0.1", 403),
        (b"127.0.0.1:80", 403),
        (b"127.0.0.1:81230", 403),
        (b"127.0.0.1:08123", 403),
        (b"127.0.0.1:8123.evil.example", 403),
        (b"127.0.0.1:8123@evil.example", 403),
        (b"127.0.0.1:8123, evil.example", 403),
        (b"127.0.0.1.:8123", 403),
        (b"127.0.0.2:8123", 403),
        (b"0.0.0.0:8123", 403),
        (b"::1:8123", 403),
        (b"evil.example:8123", 403),
        (b"", 403),
    ],
)
def test_hosts(host: bytes, status: int) -> None:
    answer = ask(guarded(), "/health", headers=[(b"host", host)])
    assert answer.status == status
    if status == 403:
        assert answer.error == ("the Host header must name this server and its port; it does not.")


def test_one_host_header_and_no_more() -> None:
    for headers in ([], [HOST, HOST], [HOST, (b"host", b"evil.example")]):
        answer = ask(guarded(), "/health", headers=headers)
        assert answer.status == 400
        assert answer.error == f"a request must have one Host header; got {len(headers)}."


def test_browsers_leave_the_port_of_http_out() -> None:
    guard = guarded(port=80)
    assert ask(guard, "/health", headers=[(b"host", b"localhost")]).status == 200
    assert ask(guard, "/health", headers=[(b"host", b"localhost:80")]).status == 200
    assert ask(guard, "/health", headers=[(b"host", b"localhost:8123")]).status == 403


def test_the_address_that_a_connection_came_in_at_is_a_name_where_all_are_listened_at() -> None:
    async def asked(host: bytes, server: str, any_address: bool) -> int:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/health",
            "query_string": b"",
            "headers": [(b"host", host)],
            "server": (server, PORT),
        }
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b""}

        async def send(message: Message) -> None:
            sent.append(message)

        await guarded(any_address=any_address)(scope, receive, send)
        return sent[0]["status"]

    for host, server, any_address, status in [
        (b"192.0.2.7:8123", "192.0.2.7", True, 200),
        (b"[2001:db8::7]:8123", "2001:db8::7", True, 200),
        (b"192.0.2.7:8123", "::ffff:192.0.2.7", True, 200),
        (b"192.0.2.7:8123", "192.0.2.7", False, 403),
        (b"192.0.2.8:8123", "192.0.2.7", True, 403),
        (b"evil.example:8123", "192.0.2.7", True, 403),
    ]:
        assert asyncio.run(asked(host, server, any_address)) == status, (host, server)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([ORIGIN], 200),
        ([], 403),
        ([(b"origin", b"null")], 403),
        ([(b"origin", b"http://evil.example")], 403),
        ([(b"origin", b"https://127.0.0.1:8123")], 403),
        ([(b"origin", b"http://127.0.0.1:8124")], 403),
        ([(b"origin", b"http://localhost:8123")], 403),
        ([ORIGIN, ORIGIN], 403),
        ([ORIGIN, (b"origin", b"http://evil.example")], 403),
    ],
)
def test_origins(headers: list[tuple[bytes, bytes]], status: int) -> None:
    guard = guarded()
    given = [HOST, cookie_of(guard), *headers]
    answer = ask(guard, "/tiles", method="POST", body=b"abc", headers=given)
    assert answer.status == status
    if status == 403:
        assert answer.error == "the Origin header must be this server's own; it is not."


@pytest.mark.parametrize("site", [b"cross-site", b"same-site"])
def test_another_page_can_lead_here_but_not_load_anything_from_here(site: bytes) -> None:
    guard = guarded()
    given = [HOST, cookie_of(guard), (b"sec-fetch-site", site)]
    answer = ask(guard, "/media/0", headers=[*given, (b"sec-fetch-mode", b"no-cors")])
    assert answer.status == 403
    assert answer.error == "requests must come from the page itself; this one does not."
    assert ask(guard, "/", headers=[*given, (b"sec-fetch-mode", b"navigate")]).status == 200
    own = [HOST, cookie_of(guarded()), (b"sec-fetch-site", b"same-origin")]
    assert ask(guard, "/health", headers=own).status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "CONNECT", "X"])
def test_methods(method: str) -> None:
    guard = guarded()
    answer = ask(guard, "/", method=method, headers=[HOST, cookie_of(guard), ORIGIN])
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert answer.error == f"{method} is not answered."


def test_an_upgrade_is_refused() -> None:
    guard = guarded()
    headers = [HOST, cookie_of(guard), (b"upgrade", b"websocket"), (b"connection", b"Upgrade")]
    assert ask(guard, "/", headers=headers).status == 400


def test_bodies_are_passed_on_whole_and_bounded() -> None:
    guard = guarded()
    headers = [HOST, cookie_of(guard), ORIGIN]
    assert ask(guard, "/tiles", method="POST", body=b"x" * 100, headers=headers).body == b"x" * 100
    answer = ask(guard, "/tiles", method="POST", body=b"x" * 101, headers=headers)
    assert answer.status == 413
    assert answer.error == "the body must be at most 100 bytes; got more."
    assert ask(guard, "/", body=b"x" * 101, headers=headers).status == 413


def test_requests_at_once_are_bounded_but_for_health() -> None:
    entered, leave = _Flag(), _Flag()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/health":
            entered.set()
            await leave.wait()
        await echo(scope, receive, send)

    guard = guarded(waits)
    headers = [HOST, cookie_of(guard)]

    async def run() -> None:
        first = asyncio.create_task(asyncio.to_thread(ask, guard, "/", headers=headers))
        await entered.wait()
        second = await asyncio.to_thread(ask, guard, "/", headers=headers)
        assert (second.status, second.headers["retry-after"]) == (503, "1")
        assert second.error == "too many requests are under way; ask again."
        health = await asyncio.to_thread(ask, guard, "/health", headers=headers)
        assert health.status == 200
        leave.set()
        assert (await first).status == 200

    asyncio.run(run())
    assert ask(guard, "/", headers=headers).status == 200


class _Flag:
    """An event for many loops: each `ask` has one of its own."""

    def __init__(self) -> None:
        self.is_up = False

    def set(self) -> None:
        self.is_up = True

    async def wait(self) -> None:
        while not self.is_up:
            await asyncio.sleep(0.002)


def test_every_answer_tells_the_browser_what_to_hold_to() -> None:
    guard = guarded()
    cookie = cookie_of(guard)
    answers = [
        ask(guard, "/health", headers=[HOST]),
        ask(guard, "/", headers=[HOST]),
        ask(guard, "/", headers=[HOST, cookie]),
        ask(guard, "/", headers=[]),
        ask(guard, "/", method="PUT", headers=[HOST, cookie]),
        opened(guard, cookie),
        opened(guarded(), *LINK),
    ]
    for answer in answers:
        for name, value in HEADERS:
            assert answer.headers[name.decode()] == value.decode()
        assert answer.headers["cache-control"] == "no-store"
        assert not any(name.startswith("access-control") for name in answer.header_names)
    policy = answers[0].headers["content-security-policy"].split("; ")
    assert policy[0] == "default-src 'none'"
    assert {"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} <= set(policy)
    assert not any("unsafe" in rule or "*" in rule or "http" in rule for rule in policy)


def test_an_answer_that_may_be_kept_says_so_itself() -> None:
    async def kept(_: Scope, __: Receive, send: Send) -> None:
        await send_whole(send, 200, [(b"cache-control", b"no-cache")], b"")

    guard = guarded(kept)
    answer = ask(guard, "/page/map.js", headers=[HOST, cookie_of(guard)])
    assert answer.headers["cache-control"] == "no-cache"
