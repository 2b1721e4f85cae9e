"""AdamW that keeps float32 copies of half-precision weights, and the learning rate of each step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor

from vpo_agent.config import Schedule
from vpo_agent.errors import memory_for

NEEDS = ("the optimizer", "give --lora-rank, or a smaller --model")
"""Arguments of :func:`memory_for`; master copies and moments grow with the number of trained weights."""


class MasterAdamW:
    """AdamW on float32 master copies of the weights.

    A bfloat16 weight has 8 bits of precision, so an update of a millionth of its size would be rounded away. The
    optimizer therefore updates float32 copies, and the model gets the rounded result. Gradients are accumulated over
    micro-batches in float32 for the same reason. Float32 weights are their own master copies. Parameters that need no
    gradient are left out.

    On a GPU the step is PyTorch's fused one, which needs no memory beyond the state; PyTorch's default there holds
    copies of the gradients, which the memory plan does not count.

    Raises:
        ValueError: No parameter needs a gradient.
        OutOfMemory: The copies or the moments do not fit into the device's memory.
    """

    @memory_for(*NEEDS)
    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        *,
        learning_rate: float,
        beta2: float,
        weight_decay: float,
        fused: bool | None = None,
    ) -> None:
        self.parameters = {name: p for name, p in named_parameters if p.requires_grad}
        if not self.parameters:
            raise ValueError(
                "no weight can be trained, because saved adapters stay apart from their base in bfloat16: give "
                "--dtype float32, or train from their base with --lora-rank"
            )
        self.masters = {
            name: p if p.dtype == torch.float32 else p.detach().float().requires_grad_()
            for name, p in self.parameters.items()
        }
        for name, parameter in self.parameters.items():
            if self.masters[name] is not parameter:
                parameter.register_post_accumulate_grad_hook(partial(_move_gradient, self.masters[name]))
        self._fused = any(master.is_cuda for master in self.masters.values()) if fused is None else fused
        self.adamw = torch.optim.AdamW(
            self.masters.values(),
            lr=learning_rate,
            betas=(0.9, beta2),
            weight_decay=weight_decay,
            fused=self._fused or None,
        )
        for master in self.masters.values():
            # As AdamW makes it in its first step; made here, memory that is too small is noticed before any sampling.
            self.adamw.state[master] = {
                "step": torch.zeros((), device=master.device if self._fused else "cpu"),
                "exp_avg": torch.zeros_like(master, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(master, memory_format=torch.preserve_format),
            }

        self.is_whole = True
        """False where an error has ended a step of the optimizer in the middle."""
        self._snapshot: dict[str, Tensor] = {}

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for tensor in (*self.parameters.values(), *self.masters.values()):
            tensor.grad = None

    def step(self, learning_rate: float, max_norm: float) -> float:
        """Clip the gradient to ``max_norm`` and take a step.

        Returns:
            The norm of the gradient before clipping. If it is not finite, no step was taken.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.masters.values(), max_norm))
        if not math.isfinite(norm):
            return norm
        for group in self.adamw.param_groups:
            group["lr"] = learning_rate
        self.is_whole = False
        self.adamw.step()
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(self.masters[name])
        self.is_whole = True
        return norm

    def snapshot(self) -> dict[str, Tensor]:
        """Copy the weights and the optimizer's state to the memory of the host, for :meth:`restore`.

        It takes 12 bytes for each trained weight, which the next snapshot uses again.
        """
        masters = {f"master/{name}": master.detach() for name, master in self.masters.items()}
        for label, tensor in {**self.state(), **masters}.items():
            if label not in self._snapshot:
                self._snapshot[label] = torch.empty_like(tensor, device="cpu")
            self._snapshot[label].copy_(tensor)
        return self._snapshot

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Go back to a :meth:`snapshot`, bit by bit."""
        self.is_whole = True
        with torch.no_grad():
            for name, master in self.masters.items():
                master.copy_(snapshot[f"master/{name}"])
                for key, value in self.adamw.state[master].items():
                    value.copy_(snapshot[f"{key}/{name}"])
                if self.parameters[name] is not master:
                    self.parameters[name].copy_(master)

    def state(self) -> dict[str, Tensor]:
        """Return the moments and the master copies as named tensors, for a checkpoint."""
        tensors = {}
        for name, master in self.masters.items():
            for key, value in self.adamw.state[master].items():
                tensors[f"{key}/{name}"] = value
            if master is not self.parameters[name]:
                tensors[f"master/{name}"] = master.detach()
        return tensors

    @memory_for(*NEEDS)
    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Load a :meth:`state`, saved at the same or another precision.

        From half precision to float32, the saved master copies replace the weights, which were saved rounded. From
        float32 to half precision there are no master copies to load: the copies made of the rounded weights stay, at
        the cost of rounding once.
        """
        names = {key.split("/", 1)[1] for key in tensors}
        if unknown := sorted(names - self.masters.keys()):
            raise ValueError(f"the optimizer state belongs to another model: it has {unknown[0]}, this one does not")
        for label, value in tensors.items():
            key, name = label.split("/", 1)
            master = self.masters[name]
            if key == "master":
                with torch.no_grad():
                    master.copy_(value)
                continue
            if key != "step" and value.shape != master.shape:
                raise ValueError(
                    f"the optimizer state belongs to another model: {name} has shape {tuple(value.shape)} "
                    f"there and {tuple(master.shape)} here"
                )
            # The number of steps is on the device only where the fused step reads it there.
            here = key != "step" or self._fused
            self.adamw.state[master][key] = value.to(master.device if here else "cpu").clone()


def learning_rate(
    step: int, *, peak: float, warmup_steps: int = 0, schedule: Schedule = "constant", steps: int | None = None
) -> float:
    """Return the learning rate of a training step, a function of its arguments alone, so that a run can be resumed.

    The rate rises linearly over ``warmup_steps`` and is ``peak`` after them. From there "constant" stays, "linear"
    decreases linearly towards 0, which it would reach after the last step, and "cosine" does so along half a cosine.

    Args:
        step: Number of the step, from 0.
        peak: The highest rate.
        warmup_steps: Steps before the rate is ``peak``.
        schedule: "constant", "linear" or "cosine".
        steps: Steps of the whole run; only "constant" does without.
    """
    rise = min(1.0, (step + 1) / (warmup_steps + 1))
    if schedule == "constant":
        return peak * rise
    if steps is None:
        raise ValueError(f"the schedule {schedule!r} needs the number of steps of the run: pass steps")
    done = min(max(0, step - warmup_steps) / max(1, steps - warmup_steps), 1.0)
    fall = 1.0 - done if schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2
    return peak * min(rise, fall)


def _move_gradient(master: Tensor, parameter: Tensor) -> None:
    """Move a parameter's gradient to its master copy, in float32."""
    assert parameter.grad is not None
    gradient = parameter.grad.float()
    parameter.grad = None
    master.grad = gradient if master.grad is None else master.grad.add_(gradient)
