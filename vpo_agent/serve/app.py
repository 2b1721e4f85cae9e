"""The HTTP side: routes, limits and errors, in front of the engine."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from vpo_agent.serve import prompts
from vpo_agent.serve.engine import Busy, Engine, Piece, Sampling, Stopped
from vpo_agent.serve.engine import Request as EngineRequest
from vpo_agent.serve.protocol import (
    ChatRequest,
    CompletionRequest,
    RequestError,
    SamplingRequest,
    choice,
    event,
    read_request,
)

DRAINED_BODIES = 32
"""A body over the limit is read to its end, up to this many times the limit, so that its sender reads the error."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request and of all requests together."""

    body_bytes: int = 2**20
    body_seconds: float = 30.0
    """Longest time for a body to arrive."""
    answers: int = 256
    """Most answers to one request: prompts times ``n``."""
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
        Route("/v1/completions", server.completions, methods=["POST"]),
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
    ]
    handlers: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        RequestError: _refused,
        HTTPException: _not_routed,
        ClientDisconnect: _gone,
        Exception: _failed,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


class _Server:
    def __init__(self, engine: Engine, name: str, limits: Limits) -> None:
        self._engine = engine
        self._name = name
        self._limits = limits
        self._created = int(time.time())
        self._encoding = asyncio.Lock()

    async def health(self, request: Request) -> Response:
        engine = self._engine
        state = {"model": self._name, "running": engine.running, "waiting": engine.waiting}
        if engine.alive:
            return JSONResponse({"status": "ok", **state})
        return JSONResponse({"status": "stopped", **state}, 503)

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        self._check_name(request.path_params["model"])
        return JSONResponse(self._card())

    async def completions(self, request: Request) -> Response:
        asked = read_request(CompletionRequest, await self._body(request))
        self._check_name(asked.model)
        encoded = await self._encode(lambda: prompts.encode_completion(self._engine.policy, asked.prompt))
        return await self._answer(request, asked, encoded)

    async def chat(self, request: Request) -> Response:
        asked = read_request(ChatRequest, await self._body(request))
        self._check_name(asked.model)
        policy, goes_on = self._engine.policy, asked.continue_final_message
        messages = [(message.role, message.text) for message in asked.messages]
        encoded = await self._encode(lambda: prompts.encode_chat(policy, messages, continue_final=goes_on))
        return await self._answer(request, asked, encoded)

    # From request to answers ---------------------------------------------------------------------------------------

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
        if size > limit:
            raise RequestError(413, f"the body is larger than the {limit:,} bytes that are read")
        return bytes(body)

    async def _encode(self, encode: Callable[[], list[list[int]]]) -> list[list[int]]:
        # A long text takes a while, and tokenizers do not promise to be safe in two threads at a time.
        async with self._encoding:
            return await asyncio.to_thread(encode)

    def _sampling(self, asked: SamplingRequest, encoded: list[list[int]]) -> Sampling:
        limits, chat = self._limits, isinstance(asked, ChatRequest)
        answers = len(encoded) * asked.n
        if answers > limits.answers:
            raise RequestError(
                400, f"{answers} answers are asked for; one request may have {limits.answers}", param="n"
            )
        longest = max(map(len, encoded))
        positions = self._engine.policy.cached_model.most_positions
        # The last token is never read, so it needs no position.
        room = None if positions is None else positions - longest + 1
        wanted = asked.max_completion_tokens if isinstance(asked, ChatRequest) else None
        wanted = wanted or asked.max_tokens
        param = "messages" if chat else "prompt"
        if room is not None and room < (wanted or 1):
            message = f"this model has {positions} positions, and the prompt takes {longest} of them"
            if room > 0:
                message = f"{message}: {wanted} more tokens do not fit, at most {room} do"
            raise RequestError(400, message, param=param, code="context_length_exceeded")
        if wanted is not None and wanted > limits.max_tokens:
            raise RequestError(
                400, f"max_tokens is {wanted}; this server draws at most {limits.max_tokens}", param="max_tokens"
            )
        if wanted is None:
            # OpenAI's defaults: 16 tokens of plain text, or as many as fit in a chat.
            wanted = min(limits.max_tokens if chat else 16, limits.max_tokens, room or limits.max_tokens)
        return Sampling(
            max_tokens=wanted,
            temperature=asked.temperature,
            top_p=asked.top_p,
            stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop),
            keep_stop=asked.include_stop_str_in_output,
            seed=asked.seed,
        )

    async def _answer(self, request: Request, asked: SamplingRequest, encoded: list[list[int]]) -> Response:
        events: asyncio.Queue[Piece | Exception] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(piece: Piece | Exception) -> None:
            with suppress(RuntimeError):  # The loop is closed, so nobody waits.
                loop.call_soon_threadsafe(events.put_nowait, piece)

        job = EngineRequest(
            prompts=encoded,
            n=asked.n,
            sampling=self._sampling(asked, encoded),
            deliver=deliver,
            stream=asked.stream,
            continues=not isinstance(asked, ChatRequest) or asked.continue_final_message,
        )
        try:
            self._engine.submit(job)
        except (Busy, Stopped) as error:
            raise _as_refusal(error) from None
        chat = isinstance(asked, ChatRequest)
        kind = "chat.completion" if chat else "text_completion"
        head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": f"{kind}.chunk" if chat and job.stream else kind,
            "created": int(time.time()),
            "model": self._name,
        }
        pieces = self._pieces(job, events)
        if job.stream:
            parts = _stream(job, pieces, head, chat, asked.stream_options.include_usage)
            return StreamingResponse(parts, media_type="text/event-stream")
        done = sorted(await _all_ended(pieces, request), key=lambda piece: piece.index)
        choices = [choice(chat, piece.index, piece.text, piece.finish) for piece in done]
        return JSONResponse({**head, "choices": choices, "usage": _usage(job, done)})

    async def _pieces(
        self, job: EngineRequest, events: asyncio.Queue[Piece | Exception]
    ) -> AsyncGenerator[Piece, None]:
        """Yield what the engine delivers until all answers have ended; if nobody waits any longer, cancel the job."""
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
            raise RequestError(
                404,
                f"there is no model {model!r} here: this server has {self._name!r}, also called 'default'",
                param="model",
                code="model_not_found",
            )

    def _card(self) -> dict[str, Any]:
        return {"id": self._name, "object": "model", "created": self._created, "owned_by": "vpo-gym"}


async def _all_ended(pieces: AsyncGenerator[Piece, None], request: Request) -> list[Piece]:
    """Wait for the ends of all answers, as long as the client does."""

    async def gather() -> list[Piece]:
        return [piece async for piece in pieces if piece.finish]

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    gathering, leaving = tasks = asyncio.create_task(gather()), asyncio.create_task(gone())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not gathering.done():
            raise ClientDisconnect
        return gathering.result()
    finally:
        gathering.cancel()
        leaving.cancel()


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
    if isinstance(error, Busy | Stopped):
        return RequestError(503, str(error), code="overloaded" if isinstance(error, Busy) else "shutting_down")
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return RequestError(500, f"the model failed: {first}", code="model_failed")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    headers = {"Retry-After": "1"} if error.status == 503 else {}
    # What is left of a body that is not read any further must not be taken for the next request.
    if error.status in (408, 413):
        headers["Connection"] = "close"
    return JSONResponse(error.body(), error.status, headers=headers)


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    allowed = sorted((error.headers or {}).get("Allow", "another method").split(", "))
    messages = {
        404: f"there is no {where}: this server has /v1/completions, /v1/chat/completions, /v1/models and /health",
        405: f"{where} is not allowed: use {' or '.join(allowed)}",
    }
    refusal = RequestError(error.status_code, messages.get(error.status_code, str(error.detail)))
    return JSONResponse(refusal.body(), error.status_code, headers=error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # Nobody reads it.


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse(_as_refusal(error).body(), 500)
