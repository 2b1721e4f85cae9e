"""Evolution with the real OpenEvolve, its language model the policy behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vpo_agent.search.endpoint import Child, Upstream, VariationEndpoint
from vpo_agent.search.instances import Env, Instance, check_budget, score
from vpo_agent.search.openevolve_job import Job
from vpo_agent.search.records import SearchResult
from vpo_agent.search.variation import Variation
from vpo_envs import Status

_SYSTEM = (
    "You improve an answer to the task below. The current program is what stands inside the answer tag. Reply with the "
    "whole new one in a ```{language} block, without answer tags.\n\n{prompt}"
)


def open_evolve(
    env: Env,
    env_id: str,
    env_kwargs: Mapping[str, Any],
    upstream: Upstream,
    indices: Sequence[int],
    *,
    budget: int = 200,
    variation: Variation = "prefix",
    language: str = "text",
    seed: int = 0,
    folder: Path | None = None,
) -> SearchResult:
    """Run OpenEvolve on each instance, one after the other.

    The first response of the policy counts to the budget; the best of its answers is OpenEvolve's initial program, and
    each of its iterations is one more answer. OpenEvolve draws from sets of random identifiers, so two runs with the
    same seed may differ.

    Args:
        env: The environment; its ``num_answers`` says how many answers a response of the policy holds.
        env_id: The id it was made by, for OpenEvolve's process to make it again.
        env_kwargs: The arguments it was made with, but for its split and number of answers.
        upstream: The endpoint behind which the policy is.
        indices: Which instances of the environment's split.
        budget: Answers to each.
        variation: ``"prefix"`` resamples prefixes, ``"rewrite"`` leaves OpenEvolve's own prompt to the model.
        language: Of the programs, as fenced blocks are marked: ``"python"`` for code, ``"text"`` for other answers.
        seed: Keys OpenEvolve's and the policy's draws.
        folder: Where OpenEvolve's own output stays; a temporary folder where ``None``.

    Raises:
        ValueError: OpenEvolve is not installed, the budget is too small, an index is outside the split, or the policy
            gave no child at all.
    """
    check_budget(budget)
    if find_spec("openevolve") is None:
        raise ValueError("method openevolve needs the package openevolve: pip install 'vpo-gym[search]'")
    m = env.num_answers
    if budget <= m:
        raise ValueError(f"iterations must be above {m}, the answers of the first response, got {budget}")
    found = []
    for index in indices:
        one = Instance(env, index, budget)
        prompt = env.prompt(one.task, 1 if variation == "rewrite" else m)
        endpoint = VariationEndpoint(
            upstream,
            prompt,
            1 if variation == "rewrite" else m,
            language=language,
            variation=variation,
            seed=int(np.random.SeedSequence([seed, index]).generate_state(1)[0]),
        )
        first = endpoint.start()
        texts = [child.text for child in first]
        rewards, status = score(env, [one.task] * len(first), texts)
        initial = texts[int(np.argmax(rewards.astype(float) @ one.weights))] or ""
        for child, reward, what in zip(first, rewards, status, strict=True):
            one.add(child.text, reward, int(what), child.tokens)
        job: Job = {
            "env": env_id,
            "env_kwargs": {**env_kwargs, "split": env.split},
            "task": one.task.model_dump(mode="json"),
            "iterations": one.room,
            "seed": seed,
            "api_base": "",
            "api_key": "none",
            "model": "vary",
            "temperature": upstream.temperature,
            "max_tokens": upstream.max_tokens,
            "timeout": int(upstream.timeout),
            "language": language,
            "system_message": _SYSTEM.format(language=language, prompt=prompt),
        }
        with tempfile.TemporaryDirectory(prefix="vpo_openevolve_") as aside:
            place = Path(aside) if folder is None else folder / f"instance_{index}"
            scored = _run_job(place.resolve(), job, endpoint, initial)
        children = endpoint.children[len(first) :]
        if not children:
            reason = endpoint.errors[-1] if endpoint.errors else "OpenEvolve asked for none"
            raise ValueError(f"the policy gave OpenEvolve no child of instance {index}: {reason}")
        _log(one, children, scored)
        found.append(one.record())
    return SearchResult(f"openevolve ({variation})", env.objective_names, tuple(found))


def _run_job(place: Path, job: Job, endpoint: VariationEndpoint, initial: str) -> dict[str, tuple[np.ndarray, int]]:
    """Run OpenEvolve in ``place``; gives reward vector and status of each program that it scored."""
    place.mkdir(parents=True, exist_ok=True)
    log = place / "evaluations.jsonl"
    log.unlink(missing_ok=True)
    suffix = ".py" if job["language"] == "python" else ".txt"
    (place / f"initial{suffix}").write_text(initial.strip(), encoding="utf-8")
    with endpoint as address:
        job["api_base"] = address
        (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-m", "vpo_agent.search.openevolve_job", str(place)]
        # The child finds this package where this process has found it.
        path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ValueError(f"OpenEvolve failed with exit status {done.returncode}: {lines[-1]}")
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    return {row["text"].strip(): (np.array(row["reward"], dtype=np.float32), row["status"]) for row in rows}


def _log(one: Instance, children: Sequence[Child], scored: Mapping[str, tuple[np.ndarray, int]]) -> None:
    """Log children in the order in which they were sampled.

    OpenEvolve scores no child that equals its parent; such a text is found under the parent. Requests that it repeated
    after an error may go beyond the budget, and those do not count.
    """
    nothing = np.zeros(one.rewards.shape[1], dtype=np.float32), int(Status.MISSING)
    for child in children[: one.room]:
        reward, status = scored.get((child.text or "").strip(), nothing)
        one.add(child.text, reward, status, child.tokens)
