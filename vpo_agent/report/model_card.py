"""The card of a trained policy: what it was trained on and how, what that changed, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class CardFacts:
    """What a card states."""

    repo: str
    """``owner/name`` on the Hub."""
    settings: Mapping[str, Any]
    """Settings of the run, by name, without paths of the machine that it ran on."""
    answers: int
    """Answers in a response, m."""
    step: int
    """Steps behind the weights."""
    objectives: Sequence[tuple[str, str]]
    """Names and meanings; empty where the environment is not at hand."""
    results: str | None
    """Heading and Markdown table of the evaluation before and after training; ``None`` where there is none."""
    base_on_hub: bool
    """Whether the settings' model is a name on the Hub, which the card may link to."""
    adapters: bool
    """Whether the weights are LoRA adapters, not a whole model."""
    license: str | None
    """Identifier such as ``apache-2.0``; ``None`` leaves the field out, for its owner to state."""


def model_card(facts: CardFacts) -> str:
    """The text of ``README.md``, with the metadata that the Hub reads on top."""
    settings = facts.settings
    metadata: dict[str, Any] = {
        "library_name": "peft" if facts.adapters else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["vpo-gym", "reinforcement-learning", "multi-objective", settings["method"]],
    }
    if facts.base_on_hub:
        metadata["base_model"] = settings["model"]
    if facts.license is not None:
        metadata["license"] = facts.license
    # JSON on one line is YAML, and quotes whatever needs it.
    top = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in metadata.items())
    parts = [f"---\n{top}\n---", f"# {facts.repo.split('/')[-1]}", _what(facts), _training(facts)]
    parts.append(
        "## Results\n\n"
        + (facts.results or "The run has no evaluation of these weights.")
        + "\n\nThe interval says how sure the difference is over prompts for this one run, not how much runs differ."
        * (facts.results is not None)
    )
    parts.append(f"## Loading it\n\n{_loading(facts)}")
    stated = f"`{facts.license}`." if facts.license else "Not stated here; that of the initial model applies to it too."
    parts.append(f"## Licence\n\n{stated}")
    return "\n\n".join(parts) + "\n"


def _what(facts: CardFacts) -> str:
    settings = facts.settings
    several = f"sets of {facts.answers} answers" if facts.answers > 1 else "single answers"
    text = (
        f"A language model that gives {several} to tasks of `{settings['env']}`, an environment whose reward is a "
        f"vector. `{settings['model']}` was trained for {facts.step} steps with the method `{settings['method']}` of "
        "VPO Gym, after Vector Policy Optimization ([arXiv 2605.22817](https://arxiv.org/abs/2605.22817))."
    )
    if facts.objectives:
        rows = "\n".join(f"| {name} | {meaning} |" for name, meaning in facts.objectives)
        text += f"\n\n| objective | what it rewards |\n|---|---|\n{rows}"
    return text


def _training(facts: CardFacts) -> str:
    rows = [f"| {name} | {facts.settings[name]} |" for name in _SHOWN]
    rows.append(f"| answers per rollout | {facts.answers} |")
    rows.append(f"| arguments of the environment | `{json.dumps(facts.settings['env_kwargs'])}` |")
    if facts.settings["method_options"]:
        rows.append(f"| options of the method | `{json.dumps(facts.settings['method_options'])}` |")
    return "## Training\n\n| setting | value |\n|---|---|\n" + "\n".join(rows) + "\n\nAll of them: `training.json`."


def _loading(facts: CardFacts) -> str:
    settings = facts.settings
    kwargs = {**settings["env_kwargs"], "num_answers": facts.answers}
    own = "" if settings["env"].startswith("vpo/") else "  # and the module that registers the environment"
    needs = "vpo-gym[lora]" if facts.adapters else "vpo-gym"
    return f"""```python
# pip install '{needs}'
import gymnasium as gym
import vpo_envs{own}
from vpo_agent.policy.language_model import LMPolicy

policy = LMPolicy.from_pretrained({facts.repo!r})
env = gym.make({settings["env"]!r}, **{kwargs!r})
prompt, info = env.reset(seed=0)
samples = policy.sample([prompt], rollouts=1, num_answers={facts.answers}, max_new_tokens={settings["max_new_tokens"]})
observation, reward, terminated, truncated, info = env.step(samples.texts[0])
print(samples.texts[0], info["reward_matrix"])
```

`AutoModelForCausalLM` and `AutoTokenizer` of transformers read it as well."""
