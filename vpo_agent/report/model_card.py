"""The model card of a trained policy: its task, training, results, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vpo_agent.report.page import markdown_table

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
    """The facts that a card states."""

    repo: str
    """``owner/name`` on the Hub."""
    settings: Mapping[str, Any]
    """Settings of the run, by name, without local paths."""
    answers: int
    """m, answers in a response."""
    step: int
    """Training steps behind the weights."""
    objectives: Sequence[tuple[str, str]]
    """Names and descriptions; empty if the environment is unavailable."""
    results: str | None
    """Heading and Markdown table of the evaluation before and after training; ``None`` if there is none."""
    base_on_hub: bool
    """Whether the settings' model is a name on the Hub, which the card may link to."""
    adapters: bool
    """Whether the weights are LoRA adapters rather than a whole model."""
    license: str | None
    """Identifier such as ``apache-2.0``; ``None`` leaves the field out."""


def model_card(facts: CardFacts) -> str:
    """Return the text of ``README.md``, headed by the metadata that the Hub reads."""
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
    # JSON on one line is valid YAML, with every quote it needs.
    top = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in metadata.items())
    parts = [f"---\n{top}\n---", f"# {facts.repo.split('/')[-1]}", _what(facts), _training(facts)]
    parts.append(
        "## Results\n\n"
        + (facts.results or "The run has no evaluation of these weights.")
        + "\n\nThe interval is over prompts for this one run. It does not say how much training runs differ."
        * (facts.results is not None)
    )
    parts.append(f"## Loading it\n\n{_loading(facts)}")
    stated = (
        f"`{facts.license}`." if facts.license else "Not stated here. The licence of the initial model applies as well."
    )
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
        text += "\n\n" + markdown_table(["objective", "what it rewards"], facts.objectives, "ll")
    return text


def _training(facts: CardFacts) -> str:
    rows = [(name, str(facts.settings[name])) for name in _SHOWN]
    rows.append(("answers per rollout", str(facts.answers)))
    rows.append(("arguments of the environment", f"`{json.dumps(facts.settings['env_kwargs'])}`"))
    if facts.settings["method_options"]:
        rows.append(("options of the method", f"`{json.dumps(facts.settings['method_options'])}`"))
    return f"## Training\n\n{markdown_table(['setting', 'value'], rows, 'll')}\n\nAll settings: `training.json`."


def _loading(facts: CardFacts) -> str:
    settings = facts.settings
    kwargs = {**settings["env_kwargs"], "num_answers": facts.answers}
    own = "" if settings["env"].startswith("vpo/") else "  # and import the module that registers the environment"
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

`AutoModelForCausalLM` and `AutoTokenizer` of transformers load it as well."""
