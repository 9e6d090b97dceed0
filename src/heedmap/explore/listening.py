"""Where the live map listens: an address that only this machine reaches, unless told otherwise."""

import errno
import ipaddress
import os
import socket
from contextlib import suppress

from heedmap.errors import ArgumentError


def listen(host: str, port: int, *, allow_other_hosts: bool) -> socket.socket:
    """Return a socket that listens already.

    Args:
        host: An address or a name of this machine.
        port: The port; any free one for 0.
        allow_other_hosts: Whether other machines may be able to reach the address.

    Raises:
        ArgumentError: for an address or a port that cannot be had.

    Example:
        >>> with listen("127.0.0.1", 0, allow_other_hosts=False) as listening:
        ...     listening.getsockname()[0]
        '127.0.0.1'
    """
    if type(port) is not int or not 0 <= port <= 65535:
        raise ArgumentError(f"port must be a whole number from 0 to 65535; got {port!r}.")
    try:
        if not host:
            raise OSError
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[
            0
        ]
    except (OSError, UnicodeError):
        raise ArgumentError(f"host must be a name that is known here; got {host!r}.") from None
    if not (allow_other_hosts or ipaddress.ip_address(place[0]).is_loopback):
        raise ArgumentError(
            "host must be an address that only this machine reaches, such as 127.0.0.1; got "
            f"{host}. Whoever reaches it can try to open the map; --expose allows that, in Python "
            "allow_other_hosts=True."
        )
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # A port that was in use a moment ago counts as free.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise _refusal(error, host, port) from None
    return listening


def is_everywhere(address: str) -> bool:
    """Return whether an address stands for all of this machine's.

    >>> is_everywhere("0.0.0.0"), is_everywhere("127.0.0.1")
    (True, False)
    """
    return ipaddress.ip_address(address).is_unspecified


def own_address(address: str) -> str:
    """Return the address by which others in the network reach this machine.

    Args:
        address: One that stands for all of this machine's, of IPv4 or IPv6.

    Returns:
        The one that the way to other networks begins at; ``localhost`` where there is no such way.
    """
    ways = [(socket.AF_INET, "192.0.2.1")]
    if ":" in address:
        ways.insert(0, (socket.AF_INET6, "2001:db8::1"))
    for family, elsewhere in ways:
        # Nothing is sent: the system only looks up which way it would go.
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((elsewhere, 9))
            return asking.getsockname()[0]
    return "localhost"


def own_names() -> set[str]:
    """Return the names by which others in the network may call this machine."""
    name = socket.gethostname()
    return {name, name.split(".")[0] + ".local"} if name else set()


def _refusal(error: OSError, host: str, port: int) -> ArgumentError:
    if error.errno == errno.EADDRINUSE:
        return ArgumentError(
            f"port must be free; got {port}, which another program listens on. Choose another one, "
            "or 0 for any that is free."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return ArgumentError(
            f"port must be one that this user may listen on; got {port}. Choose one from 1024 on."
        )
    return ArgumentError(f"host must be an address of this machine; got {host} ({error.strerror}).")
