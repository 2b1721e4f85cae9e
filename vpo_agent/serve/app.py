"""The HTTP side: routes, limits and errors, in front of the engine."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from vpo_agent.serve.engine import Busy, Engine, Piece, Stopped
from vpo_agent.serve.engine import Request as EngineRequest
from vpo_agent.serve.prompts import encode
from vpo_agent.serve.protocol import ChatRequest, CompletionRequest, RequestError, choice, event, read_request

Events: TypeAlias = asyncio.Queue[Piece | Exception]
DRAINED_BODIES = 32
"""An oversized body is read up to this many times the limit, so that its sender gets to read the error."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request and of all requests together."""

    body_bytes: int = 2**20
    body_seconds: float = 30.0
    """Longest time for a body to arrive."""
    answers: int = 256
    """Maximum number of answers to one request: prompts times ``n``."""
    max_tokens: int = 4096
    """Longest answer; the model's context limits it further."""
    rows: int = 64
    """Answers decoded at the same time."""
    waiting: int = 1024
    """Answers that may wait in the queue."""


def make_app(engine: Engine, name: str, limits: Limits) -> Starlette:
    """Make the application that serves an engine's policy under a name."""
    server = _Server(engine, name, limits)
    routes = [
        Route("/health", server.health),
        Route("/v1/models", server.models),
        Route("/v1/models/{model:path}", server.model),
        Route("/v1/completions", partial(server.answer, CompletionRequest), methods=["POST"]),
        Route("/v1/chat/completions", partial(server.answer, ChatRequest), methods=["POST"]),
    ]
    handled = (HTTPException, Busy, Stopped, Exception)
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(handled, _refused))


class _Server:
    def __init__(self, engine: Engine, name: str, limits: Limits) -> None:
        self._engine = engine
        self._name = name
        self._limits = limits
        self._card = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vpo-gym"}
        self._encoding = asyncio.Lock()

    async def health(self, request: Request) -> Response:
        engine = self._engine
        state = {"model": self._name, "running": engine.running, "waiting": engine.waiting}
        return JSONResponse({"status": "ok" if engine.alive else "stopped", **state}, 200 if engine.alive else 503)

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card]})

    async def model(self, request: Request) -> Response:
        self._check_name(request.path_params["model"])
        return JSONResponse(self._card)

    async def answer(self, kind: type[CompletionRequest | ChatRequest], request: Request) -> Response:
        asked = read_request(kind, await self._body(request))
        self._check_name(asked.model)
        # Tokenizing a long text takes a while, and tokenizers may not be thread-safe.
        async with self._encoding:
            encoded = await asyncio.to_thread(encode, self._engine.policy, asked)
        events: Events = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(piece: Piece | Exception) -> None:
            with suppress(RuntimeError):  # The loop is closed, so the client is gone.
                loop.call_soon_threadsafe(events.put_nowait, piece)

        chat = isinstance(asked, ChatRequest)
        continues = not isinstance(asked, ChatRequest) or asked.continue_final_message
        job = EngineRequest(
            encoded,
            asked.n,
            deliver,
            self._most_tokens(asked, encoded),
            temperature=asked.temperature,
            top_p=asked.top_p,
            stop=[asked.stop] if isinstance(asked.stop, str) else asked.stop,
            keep_stop=asked.include_stop_str_in_output,
            seed=asked.seed,
            stream=asked.stream,
            continues=continues,
        )
        self._engine.submit(job)
        kind_name = "chat.completion" if chat else "text_completion"
        head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": f"{kind_name}.chunk" if chat and job.stream else kind_name,
            "created": int(time.time()),
            "model": self._name,
        }
        pieces = self._pieces(job, events)
        if job.stream:
            parts = _stream(job, pieces, head, chat, asked.stream_options.include_usage)
            return StreamingResponse(parts, media_type="text/event-stream")
        leaving = asyncio.create_task(_disconnected(request, events))
        try:
            done = sorted([piece async for piece in pieces if piece.finish], key=lambda piece: piece.index)
        finally:
            leaving.cancel()
        choices = [choice(chat, piece.index, piece.text, piece.finish) for piece in done]
        return JSONResponse({**head, "choices": choices, "usage": _usage(job, done)})

    async def _body(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, f"the body must have the content type application/json, got {kind!r}")
        limit = self._limits.body_bytes
        body = bytearray()
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for part in request.stream():
                    size += len(part)
                    if size <= limit:
                        body += part
                    elif size > DRAINED_BODIES * limit:
                        break
        except TimeoutError:
            message = f"the body did not arrive within {self._limits.body_seconds:g} seconds"
            raise RequestError(408, message, code="timeout") from None
        except ClientDisconnect:
            raise RequestError(499, "the client disconnected") from None
        if size > limit:
            raise RequestError(413, f"the body is larger than the limit of {limit:,} bytes")
        return bytes(body)

    def _most_tokens(self, asked: CompletionRequest | ChatRequest, encoded: list[list[int]]) -> int:
        """Check the size of a request, and return its limit of tokens per answer."""
        limits, chat = self._limits, isinstance(asked, ChatRequest)
        answers = len(encoded) * asked.n
        if answers > limits.answers:
            message = f"the request asks for {answers} answers; the limit is {limits.answers}"
            raise RequestError(400, message, param="n")
        longest = max(map(len, encoded))
        positions = self._engine.policy.cached_model.most_positions
        # The last token is never read, so it needs no position.
        room = None if positions is None else positions - longest + 1
        wanted = asked.max_tokens
        if room is not None and room < (wanted or 1):
            message = f"this model has {positions} positions, and the prompt takes {longest} of them"
            if room > 0:
                message = f"{message}: {wanted} more tokens do not fit, at most {room} do"
            raise RequestError(400, message, param="messages" if chat else "prompt", code="context_length_exceeded")
        if wanted is not None and wanted > limits.max_tokens:
            message = f"max_tokens is {wanted}; this server allows at most {limits.max_tokens}"
            raise RequestError(400, message, param="max_tokens")
        if wanted is None:
            # OpenAI's defaults: 16 tokens of plain text, or as many as fit in a chat.
            wanted = min(limits.max_tokens if chat else 16, limits.max_tokens, room or limits.max_tokens)
        return wanted

    async def _pieces(self, job: EngineRequest, events: Events) -> AsyncGenerator[Piece, None]:
        """Yield new pieces until all answers have ended; cancel the job if the client disconnects first."""
        running = job.answers
        try:
            while running:
                piece = await events.get()
                if isinstance(piece, Exception):
                    raise _as_refusal(piece)
                running -= piece.finish is not None
                yield piece
        finally:
            self._engine.cancel(job)

    def _check_name(self, model: str) -> None:
        if model not in ("default", self._name):
            message = f"unknown model {model!r}: this server has {self._name!r}, also available as 'default'"
            raise RequestError(404, message, param="model", code="model_not_found")


async def _disconnected(request: Request, events: Events) -> None:
    """Wait until the client disconnects, then queue an error."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    events.put_nowait(RequestError(499, "the client disconnected"))


async def _stream(
    job: EngineRequest, pieces: AsyncGenerator[Piece, None], head: dict[str, Any], chat: bool, with_usage: bool
) -> AsyncIterator[bytes]:
    """Yield answers as server-sent events."""
    begun: set[int] = set()
    done: list[Piece] = []
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                part = choice(chat, piece.index, piece.text, piece.finish, delta=True, first=piece.index not in begun)
                begun.add(piece.index)
                if piece.finish:
                    done.append(piece)
                yield event({**head, "choices": [part]})
    except RequestError as error:
        yield event(error.body())
        return
    if with_usage:
        yield event({**head, "choices": [], "usage": _usage(job, done)})
    yield event("[DONE]")


def _usage(job: EngineRequest, done: Sequence[Piece]) -> dict[str, int]:
    read, sampled = sum(map(len, job.prompts)), sum(piece.tokens for piece in done)
    return {"prompt_tokens": read, "completion_tokens": sampled, "total_tokens": read + sampled}


def _as_refusal(error: Exception) -> RequestError:
    if isinstance(error, RequestError):
        return error
    if isinstance(error, Busy | Stopped):
        return RequestError(503, str(error), code="overloaded" if isinstance(error, Busy) else "shutting_down")
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return RequestError(500, f"the model failed: {first}", code="model_failed")


async def _refused(request: Request, error: Exception) -> Response:
    refusal = _as_refusal(error)
    headers = refusal.headers
    if isinstance(error, HTTPException) and not isinstance(error, RequestError):
        headers = error.headers
        where = f"{request.method} {request.url.path}"
        allowed = sorted((headers or {}).get("Allow", "another method").split(", "))
        messages = {
            404: f"there is no {where}: this server has /v1/completions, /v1/chat/completions, /v1/models and /health",
            405: f"{where} is not allowed: use {' or '.join(allowed)}",
        }
        refusal = RequestError(error.status_code, messages.get(error.status_code, error.detail))
    return JSONResponse(refusal.body(), refusal.status_code, headers)
