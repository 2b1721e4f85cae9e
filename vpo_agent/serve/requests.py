"""What a request of HTTP says about itself, before it is read: who sends it, and how long its body is."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator
from email.message import Message
from io import BufferedIOBase
from ipaddress import ip_address
from urllib.parse import urlsplit

PART = 1 << 16
"""Bytes of a body that are read at a time."""
MOST_LINE = 256
"""Longest line between the chunks of a body."""
MOST_DIGITS = 15
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class BadRequest(ValueError):
    """The request cannot be answered; the message says why."""


class Forbidden(BadRequest):
    """The request comes from a page that may not ask this server."""


def own_names() -> set[str]:
    """Return the names of this machine, in small letters."""
    return {*LOOPBACK, socket.gethostname().lower()}


def check_sender(headers: Message, names: Collection[str]) -> None:
    """Raise :class:`Forbidden` if a web page sent the request that is not from here, as its headers tell.

    A page of any site can send requests to this machine, and after it has its own name point here, read the answers:
    then ``Host`` has that name. An address cannot be made to point elsewhere, so a host that is an address is fine.
    ``Origin`` is the site of the page; only programs that are no browsers leave it out.
    """
    hosts = headers.get_all("Host", [])
    host = _name_in(f"//{hosts[0]}") if len(hosts) == 1 else None
    if host is None:
        raise BadRequest("the request needs one Host, such as 127.0.0.1:8000")
    if host not in names and not _is_address(host):
        raise Forbidden(
            f"the host {host[:100]!r} is not a name of this server: start it with --allow-host {host[:100]}"
        )
    for origin in headers.get_all("Origin", []):
        site = _name_in(origin)
        if site is None or (site not in names and site != host):
            raise Forbidden(
                f"pages of {origin[:100]!r} may not ask this server: start it with --allow-host and that name"
            )


def body_parts(headers: Message, stream: BufferedIOBase) -> Iterator[bytes]:
    """Yield the body of a request in parts, as its headers say how long it is.

    Raises:
        BadRequest: They do not say it, or the body ends early or is not in chunks as it should be.
    """
    lengths, codings = headers.get_all("Content-Length", []), headers.get_all("Transfer-Encoding", [])
    if codings:
        if lengths or [coding.strip().lower() for coding in codings] != ["chunked"]:
            raise BadRequest("a body has a Content-Length, or the Transfer-Encoding chunked alone")
        yield from _chunks(stream)
        return
    if len(set(lengths)) != 1 or not _is_number(lengths[0].strip(), "0123456789"):
        raise BadRequest("the request needs one Content-Length, a whole number, or the Transfer-Encoding chunked")
    yield from _exactly(int(lengths[0]), stream)


def _chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    while True:
        size = _line(stream).partition(b";")[0].strip().decode("ascii", "replace")
        if not _is_number(size, "0123456789abcdefABCDEF"):
            raise BadRequest("the size of a chunk is not a number")
        if not int(size, 16):
            break
        yield from _exactly(int(size, 16), stream)
        if _line(stream):
            raise BadRequest("a chunk is longer than its size")
    for _ in range(100):
        if not _line(stream):
            return
    raise BadRequest("the body has too many trailers")


def _exactly(size: int, stream: BufferedIOBase) -> Iterator[bytes]:
    while size:
        part = stream.read(min(size, PART))
        if not part:
            raise BadRequest("the body ends before it is as long as the request says")
        size -= len(part)
        yield part


def _line(stream: BufferedIOBase) -> bytes:
    line = stream.readline(MOST_LINE)
    if not line.endswith(b"\n"):
        raise BadRequest("a line between chunks is too long, or the body ends in it")
    return line.rstrip(b"\r\n")


def _is_number(text: str, digits: str) -> bool:
    return 0 < len(text) <= MOST_DIGITS and all(letter in digits for letter in text)


def _name_in(address: str) -> str | None:
    """Return the host in an address, in small letters; ``None`` if there is none, as in the address of a local file."""
    try:
        name = urlsplit(address.strip()).hostname
    except ValueError:
        return None
    return name.rstrip(".") if name else None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
