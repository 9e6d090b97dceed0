"""How much the live map's server takes on before it refuses, and how long it waits for clients."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The bounds of one server.

    Attributes:
        max_connections: How many connections may be open; more are hung up on.
        max_requests: How many requests may be under way; more are asked to come back.
        max_head_bytes: How long the address and the headers of a request may be together. Browsers
            send the cookies of every server on this machine along.
        max_body_bytes: How long its body may be.
        head_seconds: How long a client may take to send them.
        body_seconds: How long it may take to send the body.
        idle_seconds: How long a connection is kept open for the next request.
        unread_seconds: How long an answer may lie unread. A browser lets go of a paused film, too,
            and asks again for the rest.
        workers: How many threads compute pictures; one more answers small questions.
        max_waiting: How many computations may wait for a thread.
        max_unread: How many results of one request are made ahead of its reader.
        stop_seconds: How long computations may take to notice that the server closes.
    """

    max_connections: int = 256
    max_requests: int = 64
    max_head_bytes: int = 64 * 1024
    max_body_bytes: int = 64 * 1024
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    idle_seconds: int = 30
    unread_seconds: float = 60.0
    workers: int = 2
    max_waiting: int = 1024
    max_unread: int = 8
    stop_seconds: float = 1.0
