"""Evolve programs with OpenEvolve and a language model behind an endpoint; each program is scored in the sandbox.

With a model that is being served (by ``vpo serve``, vLLM or another OpenAI-compatible server):

    pip install 'vpo-gym[search]'
    python examples/evolve_code.py --api-base http://127.0.0.1:8000/v1

With a Hugging Face model, served from this process while the search runs:

    python examples/evolve_code.py --model Qwen/Qwen2.5-Coder-1.5B-Instruct

Without any model, to see that everything is in place: a script stands in for the model.

    python examples/evolve_code.py --scripted --iterations 4
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vpo_agent.runs.targets import load_policy, target_name
from vpo_agent.search import SearchJob, run_search
from vpo_agent.search.endpoint import Upstream
from vpo_agent.search.runner import SearchTarget, per_instance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api-base", metavar="URL", help="an endpoint; --model then chooses among its models")
    parser.add_argument("--model", default="", help="a Hugging Face model or folder, or a name at --api-base")
    parser.add_argument("--scripted", action="store_true", help="a script in place of a model")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--problems", type=int, default=1, help="how many bundled problems, default 1")
    parser.add_argument("--difficulty", choices=("easy", "medium", "hard"), default="easy")
    parser.add_argument("--iterations", type=int, default=20, help="programs for each problem, default 20")
    parser.add_argument("--variation", choices=("rewrite", "prefix"), default="rewrite")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("searches/evolve_code"))
    options = parser.parse_args()
    if not (options.api_base or options.model or options.scripted):
        raise ValueError("say where the policy is: --api-base URL, --model NAME, or --scripted to try without one")

    job = SearchJob(
        env="vpo/Code-v0",
        env_kwargs={"difficulty": options.difficulty},
        indices=tuple(range(options.problems)),
        method="openevolve",
        iterations=options.iterations,
        seed=options.seed,
        temperature=options.temperature,
        max_new_tokens=2048,
        variation=options.variation,
    )
    sampling = {"temperature": options.temperature, "max_tokens": job.max_new_tokens}
    say = partial(print, flush=True)
    if options.scripted:
        with scripted_model(job) as address:
            target = SearchTarget("scripted", 1, upstream=Upstream(address, **sampling))
            results = run_search(job, [target], options.out, say=say)
    else:
        if options.api_base:
            upstream = Upstream(options.api_base, options.model, options.api_key, **sampling)
            target = SearchTarget(upstream.model.replace("/", "-"), 1, upstream=upstream)
        else:
            name = target_name(options.model).replace("/", "-")
            target = SearchTarget(name, 1, partial(load_policy, options.model))
        results = run_search(job, [target], options.out, say=say)
    for name, result in results.items():
        print(f"\n{name}\n\n{per_instance(result)}")
        for one in result.instances:
            print(f"\nbest program for problem {one.index}:\n\n{one.best_answer.strip()}")
    print(f"\n{options.out}/ holds everything, OpenEvolve's own output included")


@contextmanager
def scripted_model(job: SearchJob) -> Iterator[str]:
    """An endpoint that first writes a stub, and the problem's reference solution when it is asked to do better."""
    env: Any = job.environment(1)
    tasks = [env.task(index) for index in job.indices]
    by_prompt = {env.prompt(task, 1): task for task in tasks}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(
                {"object": "list", "data": [{"id": "scripted", "object": "model", "created": 0, "owned_by": ""}]}
            )

        def do_POST(self) -> None:
            messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
            said = "\n".join(message["content"] for message in messages)
            task = next(task for prompt, task in by_prompt.items() if prompt in said)
            text = f"```python\n{task.solution}\n```" if "# Current Program" in said else "<answer>pass</answer>"
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            usage = {"prompt_tokens": len(said) // 4, "completion_tokens": len(text) // 4, "total_tokens": 0}
            head = {"id": "1", "object": "chat.completion", "created": 0, "model": "scripted"}
            self.reply({**head, "choices": [choice], "usage": usage})

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
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
