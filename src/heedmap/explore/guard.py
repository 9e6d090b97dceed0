"""Who may ask the live map, and in what form: all of its security towards a network.

A page of another origin, open in the same browser, can send requests here, and can be called by a
name that points here. So each request must be for this very host and port, must come from the page
itself, and must bring a cookie that only whoever knows the printed address has got.
"""

import secrets
from collections.abc import Collection
from urllib.parse import parse_qs

from heedmap.explore.asgi import (
    RETRY,
    App,
    Header,
    Message,
    Receive,
    Scope,
    Send,
    send_error,
    send_whole,
)
from heedmap.explore.limits import Limits

POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "font", "media", "connect")),
        "img-src 'self' blob:",
        *(f"{what} 'none'" for what in ("base-uri", "form-action", "frame-ancestors")),
    ]
)

HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

CLOSE: Header = (b"connection", b"close")
HTML: Header = (b"content-type", b"text/html; charset=utf-8")

ONWARDS = b"""<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/">
<title>heedmap</title><a href="/">heedmap</a>
"""
"""A step that the browser takes from our own page. It would keep the cookie back on a redirection
that began with a link on somebody else's, such as a notebook's."""


SPENT = """<!doctype html><meta charset="utf-8"><title>heedmap</title>
<p lang="zh">此地址已被使用或不正确：一个地址只供一个浏览器打开一次。<br>
请重新运行 heedmap，再打开它新打印的地址。</p>
<p lang="en">This address was used before or is not the right one: one address is good for one
browser. Start heedmap again and open the new address that it prints.</p>
""".encode()
"""What people read who open the address a second time, or the page without it."""


class _Refusal(Exception):
    """Why a request is not answered."""

    def __init__(self, status: int, words: str, *headers: Header) -> None:
        super().__init__(words)
        self.status, self.headers = status, headers


class Guard:
    """An ASGI application that lets through to another one what may pass.

    Attributes:
        token: What the printed address has, good for one exchange.
    """

    def __init__(
        self,
        app: App,
        *,
        hosts: Collection[str],
        port: int,
        any_address: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """Guard `app`.

        Args:
            app: What answers.
            hosts: The names that browsers may call us by; IPv6 addresses in brackets.
            port: The port that we listen on.
            any_address: Whether the address that a connection came in at is such a name, too.
            limits: How much is taken on.
        """
        self.token = secrets.token_urlsafe(32)
        self._spent = False
        self._cookie_name = f"heedmap-{port}".encode()
        self._cookie = secrets.token_urlsafe(32).encode()
        self._app = app
        self._hosts = {place for host in hosts for place in _places(host, port)}
        self._port, self._any_address = port, any_address
        self._limits = limits or Limits()
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        assert scope["type"] == "http"
        send = _with_headers(send)
        try:
            await self._admit(scope, receive, send)
        except _Refusal as refusal:
            headers = [CLOSE, *refusal.headers]
            await send_error(send, refusal.status, str(refusal), headers)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = self._own_host(scope)
        path, method = scope["path"], scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            raise _Refusal(405, f"{method} is not answered.", (b"allow", b"GET, HEAD, POST"))
        if _values(scope, b"upgrade"):
            raise _Refusal(400, "the connection must stay HTTP/1.1; got an upgrade.")
        _check_origin(scope, host)
        if path == "/open":
            await self._open(scope, send)
            return
        if path == "/health":
            await self._app(scope, receive, send)
            return
        if not self._has_cookie(scope):
            if _values(scope, b"sec-fetch-mode") == [b"navigate"]:
                # Somebody reads the answer, who copied the address from another browser, perhaps.
                await send_whole(send, 401, [CLOSE, HTML], SPENT)
                return
            raise _Refusal(
                401,
                "this map opens at the address that heedmap has printed, once; got neither it nor "
                "its cookie. Start heedmap anew for another browser.",
            )
        await self._pass_on(scope, receive, send)

    def _own_host(self, scope: Scope) -> bytes:
        """Return the Host header, which must be one of our names."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1:
            raise _Refusal(400, f"a request must have one Host header; got {len(hosts)}.")
        [host] = hosts
        allowed = self._hosts
        if self._any_address and scope.get("server"):
            # Who listens to both kinds of addresses is told of IPv4 in terms of IPv6.
            address = scope["server"][0].removeprefix("::ffff:")
            allowed = allowed | _places(f"[{address}]" if ":" in address else address, self._port)
        if host.lower() not in allowed:
            raise _Refusal(403, "the Host header must name this server and its port; it does not.")
        return host.lower()

    async def _open(self, scope: Scope, send: Send) -> None:
        """Exchange the token for the cookie, and lead on to the page."""
        if scope["method"] != "GET":
            raise _Refusal(405, "/open is for GET alone.", (b"allow", b"GET"))
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        right = secrets.compare_digest(given[0].encode(), self.token.encode())
        foreign = _is_foreign(scope)
        headers: list[Header] = []
        if right and not self._spent:
            self._spent = True
            cookie = self._cookie_name + b"=" + self._cookie
            headers = [(b"set-cookie", cookie + b"; HttpOnly; SameSite=Strict; Path=/")]
        # A browser that follows a link keeps its cookie back until the next step.
        elif not self._has_cookie(scope) and not (right and foreign):
            await send_whole(send, 401, [CLOSE, HTML], SPENT)
            return
        if foreign:
            await send_whole(send, 200, [*headers, HTML], ONWARDS)
        else:
            await send_whole(send, 303, [*headers, (b"location", b"/")], b"")

    def _has_cookie(self, scope: Scope) -> bool:
        given = [
            value
            for header in _values(scope, b"cookie")
            for name, _, value in (pair.strip().partition(b"=") for pair in header.split(b";"))
            if name == self._cookie_name
        ]
        # Another server on this machine may have set one of the same name.
        return any(secrets.compare_digest(value, self._cookie) for value in given)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._under_way >= self._limits.max_requests:
            raise _Refusal(503, "too many requests are under way; ask again.", RETRY)
        self._under_way += 1
        try:
            body = await self._body(receive)
            if body is not None:
                await self._app(scope, _with_body(body, receive), send)
        finally:
            self._under_way -= 1

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the body, or None if the client left before its end."""
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._limits.max_body_bytes:
                most = self._limits.max_body_bytes
                raise _Refusal(413, f"the body must be at most {most} bytes; got more.")
            if not message.get("more_body", False):
                return body


def _places(host: str, port: int) -> set[bytes]:
    """Return what browsers write into the Host header for a name and a port."""
    place = host.lower()
    named = {f"{place}:{port}".encode()}
    return named | {place.encode()} if port == 80 else named


def _check_origin(scope: Scope, host: bytes) -> None:
    """Refuse what another page asks for."""
    if scope["method"] not in ("GET", "HEAD"):
        if _values(scope, b"origin") != [b"http://" + host]:
            raise _Refusal(403, "the Origin header must be this server's own; it is not.")
    # Browsers say themselves where a request comes from. Following a link is no danger: a page
    # cannot look into what it leads to.
    elif _is_foreign(scope) and _values(scope, b"sec-fetch-mode") != [b"navigate"]:
        raise _Refusal(403, "requests must come from the page itself; this one does not.")


def _is_foreign(scope: Scope) -> bool:
    """Return whether the browser says that another page has asked."""
    return not {b"cross-site", b"same-site"}.isdisjoint(_values(scope, b"sec-fetch-site"))


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for given, value in scope["headers"] if given == name]


def _with_headers(send: Send) -> Send:
    """Return a `send` that adds what browsers shall hold to."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", []), *HEADERS]
            if all(name.lower() != b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await send(message)

    return send_with_headers


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, then what comes after it."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return left.pop() if left else await receive()

    return receive_again
