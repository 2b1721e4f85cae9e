"""The settings of a warm start, with their defaults and ranges; the file ``recipe.json`` of a model holds them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

FRESH = "small"


class Recipe(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, strict=True):
    """How a model learns an environment's demonstrations, and how it is evaluated on the way."""

    env: str = Field(description="environment with demonstrations: an id, or MODULE:ID")
    env_kwargs: dict[str, Any] = Field({}, description="arguments of the environment")
    imports: list[str] = Field([], description="modules or .py files that register environments of your own")
    model: str = Field(
        FRESH,
        description=f"model to start from, any Hugging Face causal LM by name, folder or GGUF file, or a bundled one; "
        f"{FRESH} has a million fresh weights and the task's own words",
    )
    lora_rank: int = Field(0, description="rank of LoRA adapters; 0 trains every weight", ge=0)
    dtype: str = Field("auto", description="auto (bfloat16 on a GPU, else float32), float32 or bfloat16")
    steps: int = Field(1000, description="optimizer steps", ge=1)
    batch: int = Field(64, description="responses per step", ge=1)
    responses: int = Field(1, description="responses to each instance; a divisor of batch", ge=1)
    answers: list[Annotated[int, Field(ge=1)]] = Field(
        [1, 3], description="numbers of answers, drawn from for each instance", min_length=1
    )
    learning_rate: float = Field(
        1e-3, description="peak rate; usual for a pretrained model: 1e-5, with LoRA 2e-4", gt=0, lt=1
    )
    positions: int = Field(256, description=f"most tokens of prompt and response, for model {FRESH}", ge=1)
    seed: int = Field(0, description="seed of weights and data", ge=0)
    max_new_tokens: int = Field(64, description="longest response in evaluations, in tokens", ge=1)
    eval_every: int = Field(100, description="steps between evaluations", ge=1)
    eval_prompts: int = Field(50, description="validation tasks of an evaluation", ge=1)
    eval_answers: int = Field(30, description="answers to each", ge=1)

    @model_validator(mode="after")
    def _responses_divide_the_batch(self) -> Recipe:
        if self.batch % self.responses:
            raise ValueError(
                f"batch={self.batch} does not hold whole groups of responses={self.responses}: give a multiple of it"
            )
        return self

    @model_validator(mode="after")
    def _a_fresh_model_is_trained_whole(self) -> Recipe:
        if self.model == FRESH and (self.lora_rank or self.dtype not in ("auto", "float32")):
            raise ValueError(f"model={FRESH} is trained whole and in float32: leave lora_rank and dtype out")
        return self
