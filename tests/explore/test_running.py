"""Listening, in a thread and in front, and ending: at once, and with nothing left behind."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from heedmap.errors import ArgumentError, MissingExtraError
from heedmap.explore.limits import Limits
from heedmap.explore.listening import listen, own_address
from heedmap.explore.running import Running, serve

from .serving import PATIENCE_SECONDS, Client, GatedExplorer


def threads_of_ours() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("heedmap")]


def test_it_runs_until_it_is_closed() -> None:
    explorer = GatedExplorer()
    with Running(explorer) as running:
        client = Client(running)
        assert running.url.startswith(f"http://127.0.0.1:{client.port}/open?token=")
        assert repr(running) == f"Running({running.url!r})"
        assert client.is_healthy()
        assert threads_of_ours()
    assert threads_of_ours() == []
    assert explorer.closed.is_set()
    assert repr(running) == "Running(closed)"
    running.close()
    running.wait()
    with pytest.raises(ConnectionRefusedError):
        client.connect()


def test_two_run_beside_each_other() -> None:
    with Running(GatedExplorer()) as one, Running(GatedExplorer()) as other:
        a, b = Client(one).open(), Client(other).open()
        assert a.port != b.port
        a.cookie, b.cookie = b.cookie, a.cookie
        assert a.get("/description").status == 401


def test_it_ends_at_once_whatever_is_under_way() -> None:
    explorer = GatedExplorer()
    running = Running(explorer)
    client = Client(running).open()
    idle, asking, reading = (client.connect() for _ in range(3))
    asking.sendall(client.posting(b'{"tiles": [[0, 0, "mean", 0, 0, 0], [0, 0, "max", 0, 0, 0]]}'))
    reading.sendall(client.head("/tiles/0/0/mean/0/0/0").encode())
    assert explorer.begun.wait(PATIENCE_SECONDS)
    start = time.monotonic()
    running.close()
    assert time.monotonic() - start < 1.5
    assert explorer.stopped.wait(PATIENCE_SECONDS)
    assert threads_of_ours() == []
    for connection in (idle, asking, reading):
        connection.close()


def test_a_computation_that_does_not_listen_does_not_keep_it() -> None:
    class Deaf(GatedExplorer):
        def tile(self, *_: object) -> bytes:
            self.begun.set()
            self.gate.wait(PATIENCE_SECONDS)
            return b""

    explorer = Deaf()
    running = Running(explorer, limits=Limits(stop_seconds=0.1))
    client = Client(running).open()
    with client.connect() as connection:
        connection.sendall((client.head("/tiles/0/0/mean/0/0/0") + "\r\n").encode())
        assert explorer.begun.wait(PATIENCE_SECONDS)
        start = time.monotonic()
        running.close()
        assert time.monotonic() - start < 1.5
    explorer.gate.set()


def test_a_port_that_is_taken_says_so() -> None:
    with Running(GatedExplorer()) as running:
        port = Client(running).port
        before = threads_of_ours()
        with pytest.raises(
            ArgumentError, match=f"port must be free; got {port}, which another program listens on"
        ):
            Running(GatedExplorer(), port=port)
        assert threads_of_ours() == before
    # It is free again as soon as the other one has ended, connections that linger or not.
    with Running(GatedExplorer(), port=port) as running:
        assert Client(running).is_healthy()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_machines_are_let_in_only_when_told(host: str) -> None:
    with pytest.raises(
        ArgumentError,
        match=f"host must be an address that only this machine reaches, such as .*; got {host}. "
        "Whoever reaches it can try to open the map; --expose allows that, in Python "
        "allow_other_hosts=True.",
    ):
        Running(GatedExplorer(), host=host)


def test_listening_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Box.lan")
    with Running(GatedExplorer(), host="0.0.0.0", allow_other_hosts=True) as running:
        own = own_address("0.0.0.0")
        assert running.url.startswith(f"http://{own}:")
        client = Client(running)
        names = ["localhost", "127.0.0.1", own, "box.lan", "Box.local"]
        for name, status in (*((name, 200) for name in names), ("0.0.0.0", 403), ("box", 403)):
            head = f"GET /health HTTP/1.1\r\nHost: {name}:{client.port}\r\n\r\n"
            answer = client.raw(head)
            assert answer is not None
            assert answer.status == status


def test_names_of_this_machine_are_for_those_who_may_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    with Running(GatedExplorer()) as running:
        client = Client(running)
        answer = client.raw(f"GET /health HTTP/1.1\r\nHost: box:{client.port}\r\n\r\n")
        assert answer is not None
        assert answer.status == 403


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_without_a_way_to_others_the_address_is_our_own(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: object) -> None:
        raise OSError(errno.ENETUNREACH, "why")

    monkeypatch.setattr(socket.socket, "connect", connect)
    assert own_address(address) == "localhost"


def test_a_host_by_name() -> None:
    with Running(GatedExplorer(), host="localhost") as running:
        assert running.url.startswith("http://localhost:")


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
def test_ipv6() -> None:
    with Running(GatedExplorer(), host="::1") as running:
        place, _, _ = running.url.removeprefix("http://").partition("/")
        port = int(place.removeprefix("[::1]:"))
        with socket.create_connection(("::1", port), PATIENCE_SECONDS) as connection:
            connection.sendall(f"GET /health HTTP/1.0\r\nHost: [::1]:{port}\r\n\r\n".encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("127.0.0.1", -1, "port must be a whole number from 0 to 65535; got -1."),
        ("127.0.0.1", 65536, "port must be a whole number from 0 to 65535; got 65536."),
        ("127.0.0.1", True, "port must be a whole number from 0 to 65535; got True."),
        ("127.0.0.1", "80", "port must be a whole number from 0 to 65535; got '80'."),
        ("", 0, "host must be a name that is known here; got ''."),
        ("no such host", 0, "host must be a name that is known here; got 'no such host'."),
        ("a" * 100, 0, f"host must be a name that is known here; got '{'a' * 100}'."),
    ],
)
def test_hosts_and_ports_that_make_no_sense(host: str, port: int, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        serve(GatedExplorer(), host=host, port=port, announce=print)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "port must be one that this user may listen on; got 80."),
        (errno.EADDRNOTAVAIL, "host must be an address of this machine; got 127.0.0.1 (why)."),
    ],
)
def test_what_the_system_refuses(number: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(*_: object) -> None:
        raise OSError(number, "why")

    monkeypatch.setattr(socket.socket, "bind", bind)
    with pytest.raises(ArgumentError) as caught:
        listen("127.0.0.1", 80, allow_other_hosts=False)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "httptools"])
def test_without_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} must be .*'heedmap\[explore\]'"):
        Running(GatedExplorer())
    assert threads_of_ours() == []


def test_a_page_that_cannot_be_made_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise OSError("no page")

    monkeypatch.setattr("heedmap.explore.running.make_app", broken)
    with pytest.raises(OSError, match="no page"):
        Running(GatedExplorer())
    assert threads_of_ours() == []


PROGRAM = """
import signal, sys, threading
sys.path.insert(0, {root!r})
from tests.explore.serving import GatedExplorer
from heedmap.explore.running import serve

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, interrupt)  # as the command line does
for _ in range(2):
    serve(GatedExplorer(), announce=lambda url: print(url, flush=True))
    print([t.name for t in threading.enumerate() if "heedmap" in t.name], flush=True)
    assert signal.getsignal(signal.SIGTERM) is interrupt
"""


def test_ctrl_c_and_sigterm_end_it_without_a_word() -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(root=str(root))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        url = process.stdout.readline().strip()
        client = Client(_Address(url)).open()  # pyright: ignore[reportArgumentType]
        with client.connect() as asking, client.connect():
            asking.sendall((client.head("/tiles/0/0/mean/0/0/0") + "\r\n").encode())
            assert client.is_healthy()
            start = time.monotonic()
            process.send_signal(number)
            assert process.stdout.readline() == "[]\n"
            assert time.monotonic() - start < 2
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, "")


class _Address:
    def __init__(self, url: str) -> None:
        self.url = url
