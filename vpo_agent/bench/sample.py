"""Sampling of a track, task by task; answers to finished tasks are kept, and the next call continues after them."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from huggingface_hub import hf_hub_download

from envs_data.parsing import parse_json
from vpo_agent.bench.tasks import ANSWERS, RESPONSES, TEMPERATURE, TRACKS, VERSION, BenchTask, best_three, digest
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import EVAL_STREAM, sample_pool
from vpo_agent.policy.model_choice import choose_dtype
from vpo_agent.policy.samples import TextResponses, TextSampler
from vpo_agent.rollouts.endpoint import EndpointPolicy
from vpo_agent.runs.pools import sample_endpoint, sample_model
from vpo_agent.runs.targets import chat_settings, find_model, near_target
from vpo_envs.common.wording import did_you_mean
from vpo_envs.core import AnyEnv
from vpo_envs.text import Prompt, format_answers

OPTIMUM = "optimum"
"""Name that is given in place of a model, for the best three answers of the exact front."""
BLIND = "blind"
"""Name that is given in place of a model, for answers that are written without reading the task."""
WRITTEN = (OPTIMUM, BLIND)
"""Names of models whose answers are written, not sampled."""
BLIND_FILE = Path(__file__).with_name("blind.json.gz")
WEIGHTS = (
    "model*.safetensors",
    "adapter_model*",
    "pytorch_model*.bin",
    "config.json",
    "adapter_config.json",
    "tokenizer.json",
)
"""Files that decide what a model answers; a checkpoint also holds the state of its training."""


@cache
def weights_hash(target: str) -> str:
    """Return a hash of the files that decide what a target answers, wherever they lie; of a Hub name, its commit."""
    if target in WRITTEN:
        return target
    model = find_model(target)
    path = Path(model)
    if not path.exists():
        for name in ("config.json", "adapter_config.json"):
            with suppress(Exception):  # of the Hub's client, where there is no such file or no network
                return Path(hf_hub_download(model, name)).parent.name
        raise ValueError(f"cannot find the model {target!r} on the Hugging Face Hub: give a folder or a bundled model")
    files = [path] if path.is_file() else sorted({file for pattern in WEIGHTS for file in path.glob(pattern)})
    digest_of_files = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest_of_files.update(hashlib.file_digest(opened, "sha256").digest())
    return digest_of_files.hexdigest()


class Written(TextSampler):
    """Gives each prompt the response that is written for it.

    Args:
        texts: A response to each prompt.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def sample(self, prompts: Sequence[Prompt], *, rollouts: int, **_: Any) -> TextResponses:
        """Return each prompt's response ``rollouts`` times."""
        return TextResponses([text for text in self._texts for _ in range(rollouts)], None)


def blind_responses() -> dict[str, dict[str, list[str]]]:
    """Return the responses of the blind answers by track and task, for seed 0."""
    responses: dict[str, dict[str, list[str]]] = parse_json(gzip.decompress(BLIND_FILE.read_bytes()))
    return responses


def optimal_responses(env: AnyEnv, num_tasks: int) -> list[str]:
    """Return responses with the best three answers of the exact fronts."""
    texts = []
    for index in range(num_tasks):
        task = env.task(index)
        points = env.front(task)
        best = best_three(np.array([point.vector for point in points]), env.active(task))
        texts.append(format_answers([points[number].answer for number in best], ANSWERS))
    return texts


class Plan(NamedTuple):
    """Which model answers which tasks, with their prompts."""

    track: str
    seed: int
    models: Mapping[str, str]
    """The target that answers each task, by the task's name; empty for an endpoint."""
    endpoint: EndpointPolicy | None
    prompts: Mapping[str, list[str]]
    hardware: Mapping[str, Any]
    """Options of local models, as for ``vpo eval``: ``device``, ``dtype`` and ``sample_batch``, if they are given."""

    @property
    def tasks(self) -> tuple[BenchTask, ...]:
        """The tasks of the track."""
        return TRACKS[self.track]

    def stamp(self, task: BenchTask) -> dict[str, Any]:
        """Return what the answers to a task depend on; a pool with another stamp belongs to another plan."""
        prompts = digest({task.name: self.prompts[task.name]})
        model = {"weights": weights_hash(self.models[task.name])} if self.models else {}
        return {"bench": VERSION, "track": self.track, "task": task.name, "prompts": prompts, **model}

    def size(self) -> dict[str, int]:
        """Return the numbers of prompts and responses, the tokens read (estimated) and the most tokens generated."""
        texts = [text for prompts in self.prompts.values() for text in prompts]
        generated = sum(RESPONSES * len(self.prompts[task.name]) * task.max_new_tokens for task in self.tasks)
        read = sum(len(text) // 4 + 1 for text in texts)
        return {"prompts": len(texts), "responses": RESPONSES * len(texts), "read": read, "generated": generated}


def make_plan(
    track: str,
    seed: int,
    models: Sequence[str],
    endpoint: EndpointPolicy | None = None,
    hardware: Mapping[str, Any] = MappingProxyType({}),
) -> Plan:
    """Return the plan for targets, each for all tasks or, as ``TASK=TARGET``, for one; by default the bundled bases.

    ``hardware`` is as in :class:`Plan`.

    Raises:
        ValueError: A task without a model, an unknown task, a target that does not exist, or an unknown dtype.
    """
    tasks = TRACKS[track]
    choose_dtype(hardware.get("dtype", "auto"), torch.device("cpu"))  # An unknown one is refused before any sampling.
    targets = _targets(track, models) if endpoint is None else {}
    for target in set(targets.values()).difference(WRITTEN):
        if find_model(target) == target and "/" not in target and not Path(target).exists():
            raise ValueError(
                f"{target!r} is no folder and no bundled model: {did_you_mean(target, WRITTEN) or near_target(target)}"
                "give a run, a model's folder, or OWNER/NAME on the Hugging Face Hub"
            )
    if BLIND in targets.values() and seed != 0:
        raise ValueError(f"the blind answers belong to the prompts of seed 0; got --seed {seed}: leave --seed out")
    return Plan(track, seed, targets, endpoint, {task.name: task.prompts(seed) for task in tasks}, hardware)


def _targets(track: str, models: Sequence[str]) -> dict[str, str]:
    """Return the target that answers each task of a track; a target given for one task precedes a target for all."""
    names = [task.name for task in TRACKS[track]]
    for_all: str | None = None
    for_task: dict[str, str] = {}
    for model in models:
        name, equals, target = model.partition("=")
        if not equals:
            for_all = model
        elif name in names:
            for_task[name] = target
        else:
            raise ValueError(f"{model!r} names no task: {did_you_mean(name, names)}choose among {', '.join(names)}")
    targets = {}
    for task in TRACKS[track]:
        target_of_task = for_task.get(task.name, task.model if for_all is None else for_all)
        if target_of_task is None:
            raise ValueError(f"the task {task.name} of the track {track} has no model of its own: give a model")
        targets[task.name] = target_of_task
    return targets


def sample_track(plan: Plan, out: Path, say: Callable[[str], None]) -> list[Pool]:
    """Return a pool for each task: read from ``out`` if it is there, otherwise sampled and saved there.

    Raises:
        ValueError: ``out`` holds answers of another model, seed or version, or in another dtype.
    """
    out.mkdir(parents=True, exist_ok=True)
    pools = []
    for number, task in enumerate(plan.tasks, 1):
        path, stamp = out / f"{task.name}.npz", plan.stamp(task)
        if path.exists():
            pool = Pool.load(path)
            if any(pool.source.get(name) != value for name, value in stamp.items()):
                raise ValueError(f"{str(path)!r} holds answers of another model, seed or version: give another --out")
        else:
            say(
                f"task {number} of {len(plan.tasks)}: {task.name}, answered by "
                f"{plan.models.get(task.name, 'the endpoint')}"
            )
            pool = _sample(plan, task)
            pool = replace(pool, source={**pool.source, **stamp})
            pool.save(path)
        pools.append(pool)
        _check_dtype(plan, pools, out)
    return pools


def _check_dtype(plan: Plan, pools: Sequence[Pool], out: Path) -> None:
    """Raise ValueError if the models of the pools answered in several dtypes, or in another than the plan has."""
    used = {pool.source["dtype"] for pool in pools if "dtype" in pool.source}
    if len(used) > 1 or (used and plan.hardware.get("dtype", "auto") not in ("auto", *used)):
        raise ValueError(
            f"{str(out)!r} holds answers in {' and in '.join(sorted(used))}: give --dtype {min(used)} or another --out"
        )


def _sample(plan: Plan, task: BenchTask) -> Pool:
    sampling = {"max_new_tokens": task.max_new_tokens, "temperature": TEMPERATURE}
    given = {
        **sampling,
        "env": task.env,
        "env_kwargs": {**task.env_kwargs, "data_seed": plan.seed},
        "split": "test",
        "prompts": task.size,
        "num_answers": ANSWERS,
        "k": ANSWERS * RESPONSES,
        "seed": plan.seed,
        **plan.hardware,
    }
    if plan.endpoint is not None:
        return sample_endpoint(plan.endpoint, given)
    target = plan.models[task.name]
    if target not in WRITTEN:
        try:
            return sample_model(find_model(target), {**given, **chat_settings(target)})
        except ValueError as error:
            reason, advice, _ = str(error).partition(": lower max_new_tokens")
            if not advice:
                raise
            raise ValueError(
                f"the context of {target!r} is too short for the {plan.track} track, whose limits are fixed: {reason}"
            ) from None
    env = task.environment(plan.seed)
    texts = blind_responses()[plan.track][task.name] if target == BLIND else optimal_responses(env, task.size)
    return sample_written(env, texts[: task.size], sampling)


def sample_written(env: AnyEnv, texts: Sequence[str], sampling: Mapping[str, Any]) -> Pool:
    """Return the pool of written responses."""
    return sample_pool(env, Written(texts), range(len(texts)), rollouts=RESPONSES, seed=[0, EVAL_STREAM], **sampling)
