"""AdamW that keeps float32 copies of half-precision weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from vpo_agent.errors import memory_for

NEEDS = ("the optimizer", "give --lora-rank, or a smaller --model")
"""What the copies and moments are for, where they do not fit, and what helps: there are as many as trained weights."""


class MasterAdamW:
    """AdamW on float32 master copies.

    A bfloat16 weight has 8 bits of precision: an update of a millionth of its size would round away. So the optimizer
    steps on float32 copies and the model gets the rounded result. Their gradients are summed over micro-batches in
    float32 for the same reason. For float32 weights the copies are the weights.

    Args:
        named_parameters: Names and parameters; those that need no gradient are left out.
        learning_rate: The rate at the start.
        beta2: Second decay rate.
        weight_decay: Decoupled decay.

    Raises:
        OutOfMemory: The device's memory does not hold the copies or, at the first step, the moments.
    """

    @memory_for(*NEEDS)
    def __init__(
        self, named_parameters: Iterable[tuple[str, Tensor]], *, learning_rate: float, beta2: float, weight_decay: float
    ) -> None:
        self.parameters = {name: p for name, p in named_parameters if p.requires_grad}
        self.masters = {
            name: p if p.dtype == torch.float32 else p.detach().float().requires_grad_()
            for name, p in self.parameters.items()
        }
        for name, parameter in self.parameters.items():
            if self.masters[name] is not parameter:
                parameter.register_post_accumulate_grad_hook(_pass_gradient_to(self.masters[name]))
        self.adamw = torch.optim.AdamW(
            self.masters.values(), lr=learning_rate, betas=(0.9, beta2), weight_decay=weight_decay
        )

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for tensor in (*self.parameters.values(), *self.masters.values()):
            tensor.grad = None

    @memory_for(*NEEDS)
    def step(self, learning_rate: float, max_norm: float) -> float:
        """Clip the gradient to ``max_norm`` and take a step, unless the gradient is not finite.

        Returns:
            The norm of the gradient before clipping; where it is not finite, nothing has changed.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.masters.values(), max_norm))
        if not math.isfinite(norm):
            return norm
        for group in self.adamw.param_groups:
            group["lr"] = learning_rate
        self.adamw.step()
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                if self.masters[name] is not parameter:
                    parameter.copy_(self.masters[name])
        return norm

    def state(self) -> dict[str, Tensor]:
        """Everything that a later run needs, as named tensors."""
        tensors = {}
        for name, master in self.masters.items():
            for key, value in self.adamw.state.get(master, {}).items():
                tensors[f"{key}/{name}"] = value
            if master is not self.parameters[name]:
                tensors[f"master/{name}"] = master.detach()
        return tensors

    @memory_for(*NEEDS)
    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over a :meth:`state`, of weights of either precision.

        Copies of half-precision weights become the weights where those are float32 now, since the weights that were
        saved beside them are rounded. The other way round there are none to take over: the copies stay those of the
        rounded weights that were loaded, which loses what rounding loses, once.

        Raises:
            ValueError: The state belongs to other weights.
        """
        names = {key.split("/", 1)[1] for key in tensors}
        if unknown := sorted(names - self.masters.keys()):
            raise ValueError(f"the optimizer state belongs to another model: it has {unknown[0]}, this one does not")
        for name, master in self.masters.items():
            state: dict[str, Any] = {}
            for key in ("step", "exp_avg", "exp_avg_sq"):
                if f"{key}/{name}" in tensors:
                    value = tensors[f"{key}/{name}"]
                    if key != "step" and value.shape != master.shape:
                        raise ValueError(
                            f"the optimizer state belongs to another model: {name} has shape {tuple(value.shape)} "
                            f"there and {tuple(master.shape)} here"
                        )
                    state[key] = value.clone() if key == "step" else value.to(master.device).clone()
            if state:
                self.adamw.state[master] = state
            if f"master/{name}" in tensors:
                with torch.no_grad():
                    master.copy_(tensors[f"master/{name}"])


def _pass_gradient_to(master: Tensor) -> Callable[[Tensor], None]:
    """A hook that adds a parameter's fresh gradient to its master's and frees it."""

    def hook(parameter: Tensor) -> None:
        assert parameter.grad is not None
        gradient = parameter.grad.float()
        parameter.grad = None
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)

    return hook
