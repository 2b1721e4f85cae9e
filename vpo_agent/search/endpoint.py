"""An endpoint that stands between OpenEvolve and a policy, and turns each of its requests into one variation.

OpenEvolve writes a long prompt around the parent and wants the child as a fenced block. That suits models that follow
instructions; a small model, or one that was trained on another prompt, cannot read it. This endpoint takes the parent
out of OpenEvolve's prompt, has the policy's own endpoint finish a random prefix of it under the prompt that the policy
knows, and gives the child back in the block that OpenEvolve reads. With ``variation="rewrite"`` it hands OpenEvolve's
prompt on as it is. Either way it counts answers and tokens, and gives each request a seed of its own: OpenEvolve sends
the same one every time, and a policy that honours it would give the same child every time.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from vpo_agent.search.variation import Variation
from vpo_envs.text import answer_tags, split_answers

_PARENT = "# Current Program\n```"
_PARENT_ENDS = "\n```\n\n# Task"
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])")
"""What a prefix in text is made of: words and marks, with the blanks before them."""
_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
MOST_BODY = 16 * 2**20


class Child(NamedTuple):
    """One answer that the policy gave."""

    text: str | None
    """The answer, or ``None`` where the policy closed none."""
    tokens: int


@dataclass
class Upstream:
    """The OpenAI-compatible endpoint behind which the policy is, and how to sample from it.

    Args:
        base_url: Such as ``http://127.0.0.1:8000/v1``.
        model: Name of the model there; the first that it lists where empty.
        api_key: What the endpoint wants; our own wants none.
        temperature: Of the sampling.
        max_tokens: Longest response.
        timeout: Seconds that a request may take.

    Raises:
        ValueError: The endpoint cannot be reached, or the ``openai`` package is missing.
    """

    base_url: str
    model: str = ""
    api_key: str = "none"
    temperature: float = 1.0
    max_tokens: int = 1024
    timeout: float = 600.0

    def __post_init__(self) -> None:
        try:
            import openai
        except ModuleNotFoundError:
            raise ValueError(
                "search through an endpoint needs the package openai: pip install 'vpo-gym[search]'"
            ) from None
        self._client = openai.OpenAI(base_url=self.base_url, api_key=self.api_key, timeout=self.timeout, max_retries=1)
        try:
            known = [model.id for model in self._client.with_options(timeout=10, max_retries=0).models.list()]
        except (openai.OpenAIError, ValueError) as error:
            raise ValueError(
                f"cannot reach the endpoint {self.base_url!r} ({type(error).__name__}): start it, for example with "
                "vpo serve, or give another --api-base"
            ) from None
        if not self.model:
            if not known:
                raise ValueError(f"the endpoint {self.base_url!r} lists no model: name one with --model")
            self.model = known[0]

    def ask(self, messages: Sequence[dict[str, str]], *, seed: int, **more: Any) -> tuple[str, int]:
        """The text of one answer to a chat, and its tokens."""
        reply = self._client.chat.completions.create(
            model=self.model,
            messages=list(messages),  # type: ignore[arg-type]  # openai wants one of its typed dicts per role
            seed=seed,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            **more,
        )
        text = reply.choices[0].message.content or ""
        return text, reply.usage.completion_tokens if reply.usage else 0

    def go_on(self, prompt: str, begun: str, closing: str, *, seed: int) -> tuple[str, int]:
        """What follows ``begun`` in an answer to ``prompt``, up to the tag ``closing``; and its tokens."""
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": begun}]
        # vLLM wants the second one said as well.
        extra = {"continue_final_message": True, "add_generation_prompt": False}
        return self.ask(messages, seed=seed, stop=[closing], extra_body=extra)


class VariationEndpoint:
    """Varies the answers to one task over HTTP, while the block runs.

    Args:
        upstream: Where the policy is.
        prompt: The environment's prompt for ``num_answers`` answers.
        num_answers: m, answers in a response of the policy.
        language: What the fenced blocks are marked with.
        variation: ``"prefix"`` or ``"rewrite"``.
        fresh: The share of prefixes that are empty.
        seed: Keys prefixes and samples.
    """

    def __init__(
        self,
        upstream: Upstream,
        prompt: str,
        num_answers: int,
        *,
        language: str,
        variation: Variation = "prefix",
        fresh: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.upstream = upstream
        self.prompt = prompt
        self.num_answers = num_answers
        self.language = language
        self.variation = variation
        self.fresh = fresh
        self.seed = seed
        self.children: list[Child] = []
        """Every answer given, in order."""
        self.errors: list[str] = []
        """What went wrong upstream, in order."""
        self._requests = 0
        self._places: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()

    def start(self) -> list[Child]:
        """Sample one whole response: its m answers are the first children."""
        seed, _ = self._draw()
        text, tokens = self.upstream.ask([{"role": "user", "content": self.prompt}], seed=seed)
        answers = split_answers(text, self.num_answers)
        if self.num_answers == 1 and answers == [None] and self.variation == "rewrite":
            answers = [_fenced(text)]
        for position, answer in enumerate(answers, start=1):
            if answer is not None:
                opening = answer_tags(self.num_answers)[position - 1][0]
                self._places[answer.strip()] = (text[: text.rindex(opening)] if opening in text else "", position)
            # The tokens of a response are those of all its answers, in equal parts.
            share = tokens // self.num_answers + (position <= tokens % self.num_answers)
            self.children.append(Child(answer, share))
        return list(self.children)

    def vary(self, messages: Sequence[dict[str, str]]) -> str:
        """The reply to a request of OpenEvolve."""
        seed, rng = self._draw()
        if self.variation == "rewrite":
            text, tokens = self.upstream.ask(messages, seed=seed)
            child: str | None = _fenced(text)
        else:
            child, tokens = self._resample(parent_in(str(messages[-1]["content"])), seed, rng)
        with self._lock:
            self.children.append(Child(child, tokens))
        return f"```{self.language}\n{(child or '').strip()}\n```"

    def _resample(self, parent: str, seed: int, rng: np.random.Generator) -> tuple[str | None, int]:
        before, position = self._places.get(parent.strip(), ("", 1))
        opening, closing = answer_tags(self.num_answers)[position - 1]
        pieces = _PIECE.findall(parent.strip())
        # The last piece is never kept, so that something is sampled anew.
        kept = 0 if rng.random() < self.fresh else int(rng.integers(max(1, len(pieces))))
        prefix = "".join(pieces[:kept])
        rest, tokens = self.upstream.go_on(self.prompt, f"{before}{opening}{prefix}", closing, seed=seed)
        child = prefix + rest
        with self._lock:
            self._places.setdefault(child.strip(), (before, position))
        return child, tokens

    def _draw(self) -> tuple[int, np.random.Generator]:
        with self._lock:
            self._requests += 1
            rng = np.random.default_rng([self.seed, self._requests])
        return int(rng.integers(2**31)), rng

    def __enter__(self) -> str:
        """Serve from a thread; gives the address that OpenEvolve is pointed at."""
        self._server = _server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="vpo-vary", daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def parent_in(prompt: str) -> str:
    """The program that OpenEvolve's prompt asks to improve.

    Raises:
        ValueError: There is none.
    """
    start = prompt.rfind(_PARENT)
    stop = prompt.rfind(_PARENT_ENDS)
    if start < 0 or stop < start:
        raise ValueError("the request holds no '# Current Program' block as OpenEvolve writes it")
    # The first line of the block names the language.
    return prompt[prompt.index("\n", start + len(_PARENT)) + 1 : stop]


def _fenced(text: str) -> str | None:
    """What a model that follows instructions wrote as its answer: the tag, else the last fence, else nothing."""
    (tagged,) = split_answers(text, 1)
    fences = _FENCE.findall(text if tagged is None else tagged)
    return str(fences[-1]) if fences else tagged


def _server(endpoint: VariationEndpoint) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                length = int(self.headers.get("Content-Length", 0))
                if not 0 < length <= MOST_BODY:
                    raise ValueError(f"the body must have 1 to {MOST_BODY} bytes")
                reply = endpoint.vary(json.loads(self.rfile.read(length))["messages"])
            except Exception as error:  # whatever it is, OpenEvolve hears of it and goes on
                endpoint.errors.append(str(error) or type(error).__name__)
                # 4xx is not tried again by the client.
                return self._send(400, {"error": {"message": endpoint.errors[-1], "type": type(error).__name__}})
            message = {"role": "assistant", "content": reply}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return self._send(
                200, {"id": "vary", "object": "chat.completion", "created": 0, "model": "vary", "choices": [choice]}
            )

        def _send(self, code: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)
