"""The model card of a trained policy: its task, training, results, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vpo_agent.report.page import markdown_table
from vpo_envs.wording import counted

_SHOWN = (
    "steps",
    "prompts_per_step",
    "rollouts_per_prompt",
    "max_new_tokens",
    "temperature",
    "learning_rate",
    "kl_coef",
    "lora_rank",
    "seed",
)


def model_card(
    repo: str,
    settings: Mapping[str, Any],
    *,
    answers: int,
    step: int,
    objectives: Sequence[tuple[str, str]],
    results: str | None,
    base_on_hub: bool,
    adapters: bool,
    license: str | None,
) -> str:
    """Return the text of ``README.md``, headed by the metadata that the Hub reads.

    The run's ``settings`` come without local paths. A response holds ``answers`` answers, the weights were
    trained for ``step`` steps, and ``results`` is the heading and table of their evaluation. Names and descriptions of
    ``objectives`` may be empty, results and licence ``None``. ``base_on_hub`` lets the card link to the initial model;
    ``adapters`` says that the weights are LoRA adapters.
    """
    metadata: dict[str, Any] = {
        "library_name": "peft" if adapters else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["vpo-gym", "reinforcement-learning", "multi-objective", settings["method"]],
    }
    if base_on_hub:
        metadata["base_model"] = settings["model"]
    if license is not None:
        metadata["license"] = license
    # JSON on one line is valid YAML, with every quote it needs.
    top = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in metadata.items())
    parts = [f"---\n{top}\n---", f"# {repo.split('/')[-1]}", _what(settings, answers, step, objectives)]
    parts += [_training(settings, answers), "## Results", results or "The run has no evaluation of these weights."]
    if results is not None:
        parts.append("The interval is over prompts for this one run. It does not say how much training runs differ.")
    stated = f"`{license}`." if license else "Not stated here. The licence of the initial model applies as well."
    parts += ["## Loading it", _loading(repo, settings, answers, adapters), "## Licence", stated]
    return "\n\n".join(parts) + "\n"


def _what(settings: Mapping[str, Any], answers: int, step: int, objectives: Sequence[tuple[str, str]]) -> str:
    several = f"sets of {answers} answers" if answers > 1 else "single answers"
    text = (
        f"A language model that gives {several} to tasks of `{settings['env']}`, an environment whose reward is a "
        f"vector. `{settings['model']}` was trained for {counted(step, 'step')} with the method `{settings['method']}` "
        "of VPO Gym, after Vector Policy Optimization ([arXiv 2605.22817](https://arxiv.org/abs/2605.22817))."
    )
    if objectives:
        text += "\n\n" + markdown_table(["objective", "what it rewards"], objectives, "ll")
    return text


def _training(settings: Mapping[str, Any], answers: int) -> str:
    rows = [(name, str(settings[name])) for name in _SHOWN]
    rows.append(("answers per rollout", str(answers)))
    rows.append(("arguments of the environment", f"`{json.dumps(settings['env_kwargs'])}`"))
    if settings["method_options"]:
        rows.append(("options of the method", f"`{json.dumps(settings['method_options'])}`"))
    return f"## Training\n\n{markdown_table(['setting', 'value'], rows, 'll')}\n\nAll settings: `training.json`."


def _loading(repo: str, settings: Mapping[str, Any], answers: int, adapters: bool) -> str:
    kwargs = {**settings["env_kwargs"], "num_answers": answers}
    own = "" if settings["env"].startswith("vpo/") else "  # and import the module that registers the environment"
    needs = "vpo-gym[lora]" if adapters else "vpo-gym"
    return f"""```python
# pip install '{needs}'
import gymnasium as gym
import vpo_envs{own}
from vpo_agent.policy.language_model import LMPolicy

policy = LMPolicy.from_pretrained({repo!r})
env = gym.make({settings["env"]!r}, **{kwargs!r})
prompt, info = env.reset(seed=0)
samples = policy.sample([prompt], rollouts=1, num_answers={answers}, max_new_tokens={settings["max_new_tokens"]})
observation, reward, terminated, truncated, info = env.step(samples.texts[0])
print(samples.texts[0], info["reward_matrix"])
```

`AutoModelForCausalLM` and `AutoTokenizer` of transformers load it as well."""
