"""What environments with generator presets and two prompt styles share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from vpo_envs.core import AnswerT, Frozen, OutcomeT, TaskT, VectorTextEnv
from vpo_envs.generation import read_knobs
from vpo_envs.wording import did_you_mean

PromptStyle = Literal["full", "compact"]


class PresetEnv(VectorTextEnv[TaskT, AnswerT, OutcomeT]):
    """A text environment with presets of its generator, and a prompt for large models beside one for small models.

    Args:
        preset: Name of one of the class's ``presets``.
        prompt_style: ``"full"`` explains the rules, ``"compact"`` is a few words.
        difficulty: Knobs that replace the preset's, by name.
        **options: Those of :class:`vpo_envs.VectorTextEnv`.

    Raises:
        ValueError: An unknown preset, prompt style or knob, or a knob out of range.
    """

    noun: ClassVar[str]
    """What an instance is called in errors."""
    presets: ClassVar[Mapping[str, Frozen]]
    """The generator's configurations by name."""
    config: Any
    """The generator's configuration: the preset with its knobs replaced."""

    def __init__(
        self,
        *,
        preset: str = "conflict",
        prompt_style: PromptStyle = "full",
        difficulty: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        for name, given, known in [
            ("prompt_style", prompt_style, get_args(PromptStyle)),
            (f"{self.noun} preset", preset, self.presets),
        ]:
            if given not in known:
                hint = did_you_mean(str(given), known)
                raise ValueError(f"unknown {name} {given!r}: {hint}choose one of {', '.join(known)}")
        self.config = read_knobs(self.presets[preset], difficulty)
        self.prompt_style = prompt_style
        self.names_tags = prompt_style == "full"
        super().__init__(**options)
