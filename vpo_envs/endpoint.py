"""Requests to an OpenAI-compatible endpoint, sent by the package ``openai``, and a sentence that says why a request
failed."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from envs_data.parsing import parse_json
from vpo_envs.common.libraries import check_package

T = TypeVar("T")
MAX_REPLY = 1 << 26
"""Most bytes of a reply."""


class EndpointError(ValueError):
    """The endpoint does not answer, or what it answers is of no use."""


class Refused(EndpointError):
    """The endpoint refuses a body (400, 422) or keeps failing on it (500); the message holds the endpoint's."""


class Client:
    """Sends requests to one endpoint from any number of threads.

    Args:
        url: Base of the API, such as ``"http://127.0.0.1:8000/v1"``; without a path, ``/v1`` is added.
        key: Sent as a bearer token, and in no message.
        key_name: Where the key is set, for messages.
        timeout: Seconds without a byte after which a try has failed.
        whole: Seconds for a whole try; ``None`` for no limit.
        retries: Further tries of a request after temporary failures.

    Raises:
        ValueError: The address is not the base of an API, the key cannot be sent, or ``openai`` is missing.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        key_name: str = "key",
        timeout: float = 300.0,
        whole: float | None = None,
        retries: int = 7,
    ) -> None:
        parts = re.fullmatch(r"(https?://[^\s/?#@]+)(/[^\s?#@]*)?", url)
        if parts is None:
            example = "such as http://127.0.0.1:8000/v1, without a password or a query"
            raise ValueError(f"an endpoint must be the base of an API, {example}: give a key with {key_name}")
        self.url = parts[1] + ((parts[2] or "").rstrip("/") or "/v1")
        # The error of the HTTP library would repeat the key.
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise ValueError(f"the key in {key_name} must be one word of ASCII characters")
        check_package("openai", "endpoint", "a model behind an endpoint")
        import openai

        self._key, self._key_name, self._retries = key, key_name, retries
        self._seconds = None if whole is None else whole * (retries + 1)
        # A connection for each request: a forked process would share those that are kept open.
        headers = {"Connection": "close", "User-Agent": "vpo-gym", **({} if key else {"Authorization": openai.Omit()})}
        # Redirections are not followed: they would send the texts on to another server.
        self._options: Any = {"headers": headers, "follow_redirects": False}
        http = openai.DefaultHttpxClient(timeout=timeout, event_hooks={"response": [_bound]})
        self._openai = openai.OpenAI(
            base_url=self.url, api_key=key or "none", timeout=timeout, max_retries=retries, http_client=http
        )

    def models(self) -> list[dict[str, Any]]:
        """Return what the endpoint says about each of its models, in one try; nothing if it does not list them."""
        import openai

        options: Any = {**self._options, "max_retries": 0}
        try:
            cards = _json(self._within(lambda: self._openai.get("/models", cast_to=object, options=options))).get(
                "data"
            )
        except openai.APIStatusError:
            return []
        except (openai.APIError, TimeoutError, ValueError) as error:
            raise self._failure(error, tries=1) from None
        return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """Send a request, and return what ``read`` makes of the reply's JSON.

        A reply that is no JSON, or for which ``read`` raises a ValueError, counts as a temporary failure.

        Raises:
            Refused: The endpoint refuses the body, or fails on it.
            EndpointError: Another request will not help, or all tries have failed.
        """
        import openai

        def send() -> Any:
            return self._openai.post(f"/{path}", body=body, cast_to=object, options=self._options)

        for left in reversed(range(self._retries + 1)):
            try:
                return read(_json(self._within(send)))
            except (openai.APIError, TimeoutError) as error:
                raise self._failure(error) from None
            except (ValueError, RecursionError) as error:
                if not left:
                    raise self._failure(error) from None
        raise AssertionError

    def _within(self, call: Callable[[], Any]) -> Any:
        """Return what a call does, unless its time is up: some servers go on sending blanks."""
        done: Future[Any] = Future()

        def work() -> None:
            try:
                done.set_result(call())
            except Exception as error:
                done.set_exception(error)

        threading.Thread(target=work, daemon=True, name="vpo-request").start()
        return done.result(timeout=self._seconds)

    def _failure(self, error: Exception, tries: int | None = None) -> EndpointError:
        """Return the sentence for an error, after all tries of a request by default."""
        import openai

        tries = self._retries + 1 if tries is None else tries
        kind, code, advice = EndpointError, 0, f", {tries} times in a row" if tries > 1 else ""
        if isinstance(error, openai.APIStatusError):
            code, said = error.status_code, _message(error.body) or error.response.reason_phrase
            kind = Refused if code in (400, 422, 500) else kind
            reason = f"answered with status {code} ({said})"
        elif isinstance(error, openai.APIConnectionError):
            cause: BaseException = error
            while cause.__cause__ or cause.__context__:
                cause = cause.__cause__ or cause.__context__ or cause
            late = isinstance(error, openai.APITimeoutError)
            said = getattr(cause, "strerror", None) or str(cause)
            reason = f"{'sent nothing for too long' if late else 'cannot be reached'} ({said})"
        elif isinstance(error, TimeoutError):
            reason, advice = f"did not finish its reply within {self._seconds:g} s", ""
        else:
            reason = f"sent {'invalid JSON: ' if isinstance(error, json.JSONDecodeError) else ''}{error}"
        if code in (401, 403):
            advice = f": check the key, which {self._key_name} sets"
        elif 0 < code < 429:
            advice = ": check the address and the model" if code in (404, 405) else ""
        text = f"the endpoint {self.url} {reason}{advice}"
        # Some servers repeat the key, or show others of the usual form.
        return kind(re.sub(r"\bsk-[\w-]+", "***", text.replace(self._key, "***") if self._key else text))


def _bound(response: Any) -> None:
    """Make the reading of an endless reply fail before the reply fills the memory."""
    read = response.iter_raw

    def read_parts(*size: int) -> Iterator[bytes]:
        total = 0
        for part in read(*size):
            total += len(part)
            if total > MAX_REPLY:
                raise ValueError(f"a reply of more than {MAX_REPLY >> 20} MiB")
            yield part

    response.iter_raw = read_parts


def _json(reply: Any) -> dict[str, Any]:
    """Return a reply as an object; raise a ValueError that says what it is instead."""
    try:
        content = parse_json(reply) if isinstance(reply, str) else reply
    except ValueError:
        advice = "give the base of its API, often ending in /v1, and let it send answers whole"
        raise ValueError(f"{_message(reply)[:80]!r} instead of JSON: {advice}") from None
    if not isinstance(content, dict) or content.get("error"):
        raise ValueError(f"an error ({_message(content)})")
    return content


def _message(body: Any) -> str:
    """Return the message of an error in the forms that servers use, on one line."""
    for name in ("error", "message", "detail"):
        if isinstance(body, dict) and body.get(name):
            body = body[name]
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
    letters = " ".join(text.split())
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in letters)
    return text if len(text) <= 300 else text[:300] + "…"
