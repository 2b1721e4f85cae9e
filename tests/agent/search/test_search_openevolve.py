"""The real OpenEvolve, driven by a policy through an endpoint, scored by an environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from paths import ROOT

from vpo_agent.search.endpoint import Upstream, VariationEndpoint, parent_in
from vpo_agent.search.openevolve_job import features

openai = pytest.importorskip("openai", reason="the package openai is not installed: pip install 'vpo-gym[search]'")


@contextmanager
def model_of(answer: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An endpoint whose chat answers are ``answer(request)``; gives its address and the requests it got."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({"object": "list", "data": [{"id": "toy", "object": "model", "created": 0, "owned_by": ""}]})

        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            message = {"role": "assistant", "content": answer(requests[-1])}
            usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "toy"}
            self.reply({**reply, "choices": choices, "usage": usage})

        def reply(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def openevolve_prompt(parent: str) -> str:
    """What OpenEvolve's full-rewrite prompt looks like around a parent."""
    return (
        "# Program Evolution History\n### Program 1\n```text\nsomething else\n```\n\n# Current Program\n"
        f"```text\n{parent}\n```\n\n# Task\nRewrite the program.\n```text\n# Your rewritten program here\n```\n"
    )


@pytest.mark.parametrize("parent", ["UP, DOWN", "", "a\n```\nb", "x = 1\n\n# Task\ny = 2"])
def test_the_parent_is_read_out_of_the_prompt(parent: str) -> None:
    assert parent_in(openevolve_prompt(parent)) == parent


def test_a_prompt_without_a_parent_is_an_error() -> None:
    with pytest.raises(ValueError, match="no '# Current Program' block"):
        parent_in("Hello")


def test_the_parent_is_what_the_real_prompt_sampler_wrote() -> None:
    pytest.importorskip("openevolve", reason="OpenEvolve is not installed: pip install 'vpo-gym[search]'")
    from openevolve.config import PromptConfig
    from openevolve.prompt.sampler import PromptSampler

    program = "def f(x):\n    return '```'\n"
    prompt = PromptSampler(PromptConfig()).build_prompt(
        current_program=program,
        parent_program=program,
        program_metrics={"combined_score": 0.5},
        top_programs=[{"code": "other", "metrics": {"combined_score": 0.6}}],
        language="python",
        diff_based_evolution=False,
        feature_dimensions=["combined_score"],
    )
    assert parent_in(prompt["user"]) == program


def test_a_child_keeps_a_prefix_of_its_parent_and_the_answers_before_it() -> None:
    def answer(request: dict[str, Any]) -> str:
        begun = len(request["messages"]) == 2
        return " L R" if begun else "<answer_1> U U </answer_1><answer_2> D D D D </answer_2>"

    with model_of(answer) as (address, requests):
        endpoint = VariationEndpoint(Upstream(address), "the prompt", 2, language="text", fresh=0.0, seed=1)
        assert [child.text for child in endpoint.start()] == [" U U ", " D D D D "]
        assert sum(child.tokens for child in endpoint.children) == 7
        with endpoint as served:
            client = openai.OpenAI(base_url=served, api_key="none")
            chat = [{"role": "user", "content": openevolve_prompt("D D D D")}]
            replies = [
                client.chat.completions.create(model="vary", messages=chat, seed=3).choices[0].message.content
                for _ in range(30)
            ]
    begun = [request["messages"] for request in requests[1:]]
    assert {len(messages) for messages in begun} == {2}
    kept = [messages[1]["content"] for messages in begun]
    head = "<answer_1> U U </answer_1><answer_2>"
    assert all(text.startswith(head) for text in kept)
    assert {text.removeprefix(head) for text in kept} == {"", "D", "D D", "D D D"}
    assert all(request["stop"] == ["</answer_2>"] and request["continue_final_message"] for request in requests[1:])
    for text, reply in zip(kept, replies, strict=True):
        assert reply == f"```text\n{(text.removeprefix(head) + ' L R').strip()}\n```"
    # OpenEvolve sends one seed for ever; the policy gets another each time.
    assert len({request["seed"] for request in requests}) == 31
    assert len(endpoint.children) == 32


def test_the_rewrite_variation_hands_the_prompt_on() -> None:
    with model_of(lambda request: "Here it is:\n```python\nx = 2\n```") as (address, requests):
        endpoint = VariationEndpoint(Upstream(address), "p", 1, language="python", variation="rewrite")
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": openevolve_prompt("x = 1")}]
        assert endpoint.vary(messages) == "```python\nx = 2\n```"
    assert requests[0]["messages"] == messages
    assert endpoint.children == [("x = 2\n", 7)]


def test_an_endpoint_that_fails_is_reported_to_openevolve() -> None:
    with model_of(lambda request: "x") as (address, _):
        endpoint = VariationEndpoint(Upstream(address), "p", 1, language="text")
        with endpoint as served:
            client = openai.OpenAI(base_url=served, api_key="none", max_retries=0)
            with pytest.raises(openai.BadRequestError, match="no '# Current Program' block"):
                client.chat.completions.create(model="vary", messages=[{"role": "user", "content": "hello"}])
    assert endpoint.children == []
    assert len(endpoint.errors) == 1


def test_the_grid_has_at_most_four_dimensions_and_sees_every_active_objective() -> None:
    names = [f"test_{i}" for i in range(16)]
    assert features(names[:4], [True, False, True, True]) == {"test_0": [0], "test_2": [2], "test_3": [3]}
    many = features(names, [True] * 10 + [False] * 6)
    assert len(many) == 4
    assert sorted(column for columns in many.values() for column in columns) == list(range(10))


def test_openevolve_evolves_programs_in_the_sandbox(tmp_path: Path) -> None:
    """Three iterations of the real OpenEvolve on a bundled problem, from the command line as a user would."""
    pytest.importorskip("openevolve", reason="OpenEvolve is not installed: pip install 'vpo-gym[search]'")
    example = ROOT / "examples" / "evolve_code.py"
    command = [sys.executable, str(example), "--scripted", "--iterations", "4", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = (tmp_path / "out" / "scripted.jsonl").read_text().splitlines()
    found = json.loads(line)
    # The stub earns nothing, and the second program is the problem's own solution.
    assert found["best"] == pytest.approx(1.0)
    assert found["solved_at"] == 2
    assert len(found["rewards"]) == 4
    folder = tmp_path / "out" / "openevolve" / "scripted" / "instance_0"
    scored = [json.loads(row) for row in (folder / "evaluations.jsonl").read_text().splitlines()]
    # It scores the solution again where the stub is the parent again, and not where the solution itself is.
    assert scored[0]["scalar"] == 0.0
    assert [row["scalar"] for row in scored[1:]] == pytest.approx([1.0] * (len(scored) - 1))
    assert len(scored) > 1
    best = json.loads((folder / "openevolve" / "best" / "best_program_info.json").read_text())
    assert best["metrics"]["combined_score"] == pytest.approx(1.0)
    assert found["best_answer"].strip() in done.stdout


def test_openevolve_evolves_the_tiny_models_routes(tmp_path: Path) -> None:
    """The bundled model behind ``vpo serve``'s endpoint, its answers varied by prefix resampling."""
    pytest.importorskip("openevolve", reason="OpenEvolve is not installed: pip install 'vpo-gym[search]'")
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'vpo-gym[serve]'")
    from vpo_agent.rollouts.collect import make_text_env
    from vpo_agent.runs.targets import load_policy
    from vpo_agent.search import SearchJob, run_search
    from vpo_agent.search.runner import SearchTarget

    maze = {"preset": "embedded", "prompt_style": "compact"}
    job = SearchJob("vpo/Maze-v0", (1,), "openevolve", maze, iterations=6, max_new_tokens=100)
    target = SearchTarget("tiny", 3, lambda: load_policy("tiny-maze", device="cpu"))
    (one,) = run_search(job, [target], tmp_path / "out", say=lambda text: None)["tiny"].instances
    assert one.rewards.shape == (6, 4)
    assert (one.tokens > 0).all()
    assert one.best()[-1] >= one.best()[2]
    env = make_text_env("vpo/Maze-v0", **maze, split="test")
    vector = env.score_answers(env.task(1), [one.best_answer])[0][0]
    assert np.dot(vector, one.weights) == pytest.approx(one.best()[-1])
