"""Sends requests to an endpoint, again where another try may help, and says in one sentence why one failed."""

from __future__ import annotations

import json
import random
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Pause before the second try, which doubles from try to try; at random it is up to half shorter."""
PATIENCE_S = 300.0
"""Longest wait that an endpoint may ask for."""
MOST_BYTES = 64 * 2**20
TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Statuses after which the same request may succeed."""


class EndpointError(ValueError):
    """The endpoint does not answer, or what it answers is of no use."""


class Refused(EndpointError):
    """The endpoint does not accept the content of a request; ``said`` is its own message."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class ServerFailed(EndpointError):
    """The endpoint has answered the last try of a request with an error of its own, status 500."""


class _Temporary(Exception):
    """The reason for another try."""


class _Status(Exception):
    """The reply has a status other than success."""

    def __init__(self, code: int, reason: str, headers: Message, body: Any) -> None:
        self.code, self.reason, self.headers, self.body = code, reason, headers, body


class Names(NamedTuple):
    """What settings are called where the client is used, for its messages."""

    url: str = "--endpoint"
    """The address."""
    key: str = "--api-key-env"
    """The variable with the key."""
    address: str = "--endpoint, --model and --api"
    """All that decides what is asked for."""


OPTIONS = Names()
"""What the settings are called on the command line."""


class Client:
    """Sends requests to one endpoint from any number of threads.

    Args:
        url: Base of the API, such as ``"http://127.0.0.1:8000/v1"``; without a path, ``/v1`` is added.
        key: Sent as a bearer token, and in no message.
        key_name: Where the key comes from, for messages.
        timeout: Seconds without a byte after which a request has failed.
        whole: Seconds after which a request has failed whose reply is not complete; ``None`` for no limit.
        most_bytes: Longest reply.
        retries: Further tries of a request after temporary failures.
        pause: Waits for a number of seconds.
        names: What these settings are called in messages.

    Raises:
        ValueError: The address is not one of an API, or the key cannot be sent.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        key_name: str = "key",
        timeout: float = 300.0,
        whole: float | None = None,
        most_bytes: int = MOST_BYTES,
        retries: int = 7,
        pause: Callable[[float], None] = time.sleep,
        names: Names = OPTIONS,
    ) -> None:
        self.url = _base(url, names)
        # The error of the standard library would repeat the key.
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise ValueError(f"the key in {key_name} must be one word of ASCII characters")
        self._key, self._key_name = key, key_name
        self._timeout, self._whole, self._most_bytes = timeout, whole, most_bytes
        self._retries, self._pause, self._names = retries, pause, names
        self._opener = urllib.request.build_opener(_NoRedirect, _Http, _Https(ssl.create_default_context()))
        self._lock = threading.Lock()
        self._next_request = 0.0
        """When the endpoint wants the next request, in seconds of the monotonic clock."""

    def models(self) -> list[dict[str, Any]]:
        """Return what the endpoint says about each of its models; nothing if it does not list them. One try.

        Raises:
            EndpointError: The endpoint cannot be reached, or is no API.
        """
        try:
            listing = self._send("models", None)
        except _Status:
            return []
        except _Temporary as failure:
            raise EndpointError(f"the endpoint {self.url} {failure}") from None
        cards = listing.get("data") if isinstance(listing, dict) else None
        return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T], *, retries: int | None = None) -> T:
        """Send a request, and return what ``read`` makes of the reply's JSON.

        A reply for which ``read`` raises a ValueError counts as a temporary failure. ``retries`` are the client's
        unless they are given.

        Raises:
            Refused: The endpoint refuses the body.
            ServerFailed: The last try has got status 500.
            EndpointError: Another request will not help, or none has.
        """
        retries = self._retries if retries is None else retries
        for attempt in range(retries + 1):
            kind = EndpointError
            self._pause_until(self._next_request)
            try:
                reply = self._send(path, body)
                try:
                    return read(reply)
                except ValueError as error:
                    raise _Temporary(str(error)) from None
            except _Status as status:
                reason, wait = self._another_try(status, path)
                kind = ServerFailed if status.code == 500 else EndpointError
            except _Temporary as failure:
                reason, wait = str(failure), None
            if wait is not None and wait > PATIENCE_S:
                raise EndpointError(f"the endpoint {self.url} {reason}, and asks for a pause of {wait:.0f} s")
            if attempt == retries:
                break
            if wait is None:
                self._pause(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt) * random.uniform(0.5, 1))
            else:
                with self._lock:
                    self._next_request = max(self._next_request, time.monotonic() + wait)
        tries = f", {attempt + 1} times in a row" if attempt else ""
        raise kind(f"the endpoint {self.url} {reason}{tries}")

    def _pause_until(self, moment: float) -> None:
        left = moment - time.monotonic()
        if left > 0:
            self._pause(left)

    def _send(self, path: str, body: dict[str, Any] | None) -> Any:
        """Return the JSON of a reply."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "vpo-gym"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        call = _Call(f"{self.url}/{path}", data, headers)
        try:
            with call.cut_after(self._whole), self._opener.open(call, timeout=self._timeout) as reply:
                content = reply.read(self._most_bytes + 1)
        except urllib.error.HTTPError as error:
            with call.cut_after(self._whole), error:
                raise _Status(error.code, str(error.reason), error.headers, _read(error)) from None
        except (OSError, HTTPException) as error:
            raise _Temporary(self._why(error, call)) from None
        if call.late:
            raise _Temporary(self._why(None, call))
        if len(content) > self._most_bytes:
            raise EndpointError(f"the endpoint {self.url} sent more than {self._most_bytes / 2**20:g} MiB")
        return self._json(content)

    def _why(self, error: Exception | None, call: _Call) -> str:
        """Return why there is no reply."""
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if call.late:
            return f"did not finish its reply within {self._whole:g} s"
        if isinstance(cause, TimeoutError):
            return f"sent nothing for {self._timeout:g} s"
        if isinstance(error, urllib.error.URLError):
            return f"cannot be reached ({_reason(cause)})"
        return f"dropped the connection ({_reason(cause)})"

    def _json(self, body: bytes) -> Any:
        # The fields of an event stream, and its comments.
        if body.lstrip().startswith((b"data:", b"event:", b"id:", b":")):
            raise EndpointError(
                f"the endpoint {self.url} streams its answers, though it was not asked to: set it up to send them whole"
            )
        if body.lstrip()[:1] == b"<":
            raise EndpointError(
                f"the endpoint {self.url} answers with a page of HTML: give the base of its API, often ending in /v1"
            )
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            raise _Temporary(f"sent invalid JSON ({self._hidden(body[:80].decode(errors='replace'))!r})") from None
        error = found.get("error") if isinstance(found, dict) else None
        if error:
            raise _Temporary(f"reported an error ({self._hidden(_message(found))})")
        return found

    def _another_try(self, error: _Status, path: str) -> tuple[str, float | None]:
        """Return why to try again, and the pause that the endpoint asks for.

        Raises:
            EndpointError: Another try would not help.
        """
        said = self._hidden(_message(error.body)) or error.reason
        reason = f"answered with status {error.code} ({said})"
        if error.code in TEMPORARY and "insufficient_quota" not in str(error.body):
            return reason, _retry_after(error.headers.get("Retry-After"))
        failed = f"the endpoint {self.url} {reason}"
        if error.code in (400, 422):
            raise Refused(failed, said)
        if error.code in (401, 403):
            name_it = f"name the environment variable that holds its key with {self._names.key}"
            failed += f": {name_it if self._key is None else f'check the key in {self._key_name}'}"
        elif error.code in (404, 405):
            failed += f" for /{path}: check {self._names.address}"
        elif error.code in (301, 302, 303, 307, 308):
            failed += f": it has moved to {error.headers.get('Location')!r}"
        raise EndpointError(failed)

    def _hidden(self, text: str) -> str:
        """Return a text without the key, which some servers repeat, and without others of the usual form."""
        return re.sub(r"\bsk-[\w-]+", "***", text.replace(self._key, "***") if self._key else text)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection, which would send the key on to another server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Call(urllib.request.Request):
    """A request whose connection is cut when its time is up, however the server goes on sending."""

    _sock: socket.socket | None = None
    late = False
    """Whether its time was up."""

    @contextmanager
    def cut_after(self, seconds: float | None) -> Iterator[None]:
        """Cut the connection unless the block ends in time."""
        if seconds is None:
            yield
            return
        watch = threading.Timer(seconds, self._cut)
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            watch.cancel()

    def opened(self, opened: socket.socket) -> None:
        """Take note of the connection."""
        self._sock = opened
        if self.late:
            self._cut()

    def _cut(self) -> None:
        self.late = True
        if self._sock is not None:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_watched, HTTPConnection, req), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, trusted: ssl.SSLContext) -> None:
        super().__init__(context=trusted)
        self._trusted = trusted

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_watched, HTTPSConnection, req), req, context=self._trusted)


def _watched(kind: type[HTTPConnection], call: urllib.request.Request, host: str, **options: Any) -> HTTPConnection:
    """Return a connection that tells its request which socket it has opened."""
    assert isinstance(call, _Call)
    connection = kind(host, **options)
    plain = connection.connect

    def connect() -> None:
        plain()
        call.opened(connection.sock)

    connection.connect = connect  # type: ignore[method-assign]  # of this connection alone
    return connection


def _base(url: str, names: Names) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"{names.url} must be the base of an API, such as http://127.0.0.1:8000/v1; got {url!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"{names.url} must not hold a password, a query or a fragment: give a key with {names.key}")
    return url.rstrip("/") if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1"


def _read(error: urllib.error.HTTPError) -> Any:
    """Return the body of an error, as JSON if it is."""
    try:
        text = error.read(2**16).decode(errors="replace")
    except (OSError, HTTPException):
        return ""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _message(body: Any) -> str:
    """Return the message of an error in the forms that servers use, on one line."""
    for name in ("error", "message", "detail"):
        if isinstance(body, dict) and body.get(name):
            body = body[name]
    text = body if isinstance(body, str) else json.dumps(body)
    if text.lstrip().startswith("<"):
        return "a page of HTML"
    text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in " ".join(text.split()))
    return text if len(text) <= 300 else text[:300] + "…"


def _retry_after(value: str | None) -> float | None:
    """Return the seconds to wait, from a number or a date.

    ``None`` without either, and for 0 or a date in the past, such as a slow clock gives: without a pause all tries
    would be used up at once.
    """
    if value is None:
        return None
    try:
        wait = float(value)
    except ValueError:
        try:
            wait = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return wait if wait > 0 else None


def _reason(error: Any) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
