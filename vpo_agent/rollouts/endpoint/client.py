"""Sends requests to an endpoint, again where another try may help, and says in one sentence why one failed."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, TypeVar
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


class _Temporary(Exception):
    """The reason for another try."""


class Client:
    """Sends requests to one endpoint from any number of threads.

    Args:
        url: Base of the API, such as ``"http://127.0.0.1:8000/v1"``; without a path, ``/v1`` is added.
        key: Sent as a bearer token, and in no message.
        key_name: Where the key comes from, for messages.
        timeout: Seconds without a byte after which a request has failed.
        retries: Further tries of a request after temporary failures.
        pause: Waits for a number of seconds.

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
        retries: int = 7,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = _base(url)
        # The error of the standard library would repeat the key.
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise ValueError(f"the key in {key_name} must be one word of ASCII characters")
        self._key, self._key_name = key, key_name
        self._timeout, self._retries, self._pause = timeout, retries, pause
        self._opener = urllib.request.build_opener(_NoRedirect)
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
        except urllib.error.HTTPError as error:
            error.close()
            return []
        except _Temporary as failure:
            raise EndpointError(f"the endpoint {self.url} {failure}") from None
        cards = listing.get("data") if isinstance(listing, dict) else None
        return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """Send a request, and return what ``read`` makes of the reply's JSON.

        A reply for which ``read`` raises a ValueError counts as a temporary failure.

        Raises:
            Refused: The endpoint refuses the body.
            EndpointError: Another request will not help, or none has.
        """
        for attempt in range(self._retries + 1):
            self._pause_until(self._next_request)
            try:
                reply = self._send(path, body)
                try:
                    return read(reply)
                except ValueError as error:
                    raise _Temporary(str(error)) from None
            except urllib.error.HTTPError as error:
                with error:
                    reason, wait = self._another_try(error, path)
            except _Temporary as failure:
                reason, wait = str(failure), None
            if wait is not None and wait > PATIENCE_S:
                raise EndpointError(f"the endpoint {self.url} {reason}, and asks for a pause of {wait:.0f} s")
            if attempt == self._retries:
                break
            if wait is None:
                self._pause(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt) * random.uniform(0.5, 1))
            else:
                with self._lock:
                    self._next_request = max(self._next_request, time.monotonic() + wait)
        tries = f", {attempt + 1} times in a row" if attempt else ""
        raise EndpointError(f"the endpoint {self.url} {reason}{tries}")

    def _pause_until(self, moment: float) -> None:
        left = moment - time.monotonic()
        if left > 0:
            self._pause(left)

    def _send(self, path: str, body: dict[str, Any] | None) -> Any:
        """Return the JSON of a reply; HTTPError for a status other than success."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "vpo-gym"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(f"{self.url}/{path}", data, headers)
        try:
            with self._opener.open(call, timeout=self._timeout) as reply:
                return self._json(reply.read(MOST_BYTES))
        except urllib.error.HTTPError:
            raise
        except TimeoutError:
            raise _Temporary(f"sent nothing for {self._timeout:g} s") from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _Temporary(f"sent nothing for {self._timeout:g} s") from None
            raise _Temporary(f"cannot be reached ({_reason(error.reason)})") from None
        except (OSError, HTTPException) as error:
            raise _Temporary(f"dropped the connection ({_reason(error)})") from None

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

    def _another_try(self, error: urllib.error.HTTPError, path: str) -> tuple[str, float | None]:
        """Return why to try again, and the pause that the endpoint asks for.

        Raises:
            EndpointError: Another try would not help.
        """
        body = _read(error)
        said = self._hidden(_message(body)) or str(error.reason)
        reason = f"answered with status {error.code} ({said})"
        if error.code in TEMPORARY and "insufficient_quota" not in str(body):
            return reason, _retry_after(error.headers.get("Retry-After"))
        failed = f"the endpoint {self.url} {reason}"
        if error.code in (400, 422):
            raise Refused(failed, said)
        if error.code in (401, 403):
            name_it = "name the environment variable that holds its key with --api-key-env"
            failed += f": {name_it if self._key is None else f'check the key in {self._key_name}'}"
        elif error.code in (404, 405):
            failed += f" for /{path}: check --endpoint, --model and --api"
        elif error.code in (301, 302, 303, 307, 308):
            failed += f": it has moved to {error.headers.get('Location')!r}"
        raise EndpointError(failed)

    def _hidden(self, text: str) -> str:
        """Return a text without the key, which some servers repeat."""
        return text if not self._key else text.replace(self._key, "***")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection, which would send the key on to another server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _base(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"--endpoint must be the base of an API, such as http://127.0.0.1:8000/v1; got {url!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("--endpoint must not hold a password, a query or a fragment: give a key with --api-key-env")
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
