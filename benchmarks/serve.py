"""Compare the throughput of concurrent clients with that of one, and check that the answers are the same.

Run with `python benchmarks/serve.py`. It serves the bundled model, sends the same requests (mazes with a seed each)
from one client and from 32 concurrent ones over HTTP, and prints the tokens per second of both. The target is a ratio
of at least 4. It also prints how many answers were the same: with a seed they should not depend on the rest of the
batch, but arithmetic may round differently in batches of different shapes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import torch

from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.targets import load_policy
from vpo_agent.serve import RunningServer, serve_in_background


def ask(connection: http.client.HTTPConnection, body: str) -> tuple[str, int]:
    """Return the text of one answer and its number of tokens."""
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    return answer["choices"][0]["text"], answer["usage"]["completion_tokens"]


def measure(server: RunningServer, bodies: list[str], clients: int) -> tuple[list[str], float]:
    """Return the texts, and tokens per second; client i takes every ``clients``-th request, over one connection."""

    def work(first: int) -> list[tuple[str, int]]:
        connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc)
        return [ask(connection, body) for body in bodies[first::clients]]

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        parts = list(pool.map(work, range(clients)))
    seconds = time.perf_counter() - start
    answers = [parts[i % clients][i // clients] for i in range(len(bodies))]
    return [text for text, _ in answers], sum(tokens for _, tokens in answers) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", default="tiny-maze-easy", help="what is served, default tiny-maze-easy")
    parser.add_argument("--clients", type=int, default=32, help="default 32")
    parser.add_argument("--requests", type=int, default=64, help="default 64")
    parser.add_argument("--max-tokens", type=int, default=112, help="default 112")
    chosen = parser.parse_args()
    torch.set_num_threads(1)

    env = make_text_env("vpo/Maze-v0", preset="embedded-easy", prompt_style="compact", num_answers=3)
    bodies = [
        json.dumps({"prompt": env.prompt(env.task(i), 3), "max_tokens": chosen.max_tokens, "seed": i})
        for i in range(chosen.requests)
    ]
    with serve_in_background(load_policy(chosen.target)) as server:
        measure(server, bodies[:2], 2)
        # Alternating, so that a machine that is busy for a while does not decide the ratio.
        rounds = [(measure(server, bodies, 1), measure(server, bodies, chosen.clients)) for _ in range(2)]
    single, many = (max(speed for _, speed in runs) for runs in zip(*rounds, strict=True))
    (texts_single, _), (texts_many, _) = rounds[0]
    same = sum(a == b for a, b in zip(texts_single, texts_many, strict=True))
    print(f"{chosen.requests} requests to {chosen.target}, at most {chosen.max_tokens} tokens each, one thread")
    print(f"one at a time     {single:8.1f} tokens/s")
    print(f"{chosen.clients:3d} at a time      {many:8.1f} tokens/s")
    print(f"ratio             {many / single:8.1f}")
    print(f"same answers      {same:5d} of {chosen.requests}")


if __name__ == "__main__":
    main()
