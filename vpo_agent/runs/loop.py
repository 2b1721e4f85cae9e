"""The loop of every training: steps, rows and checkpoints, until the last step or until it is stopped."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import FrameType
from typing import Any

from vpo_agent.policy.generators import generator_states, restore_generators

STOPS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a training as Ctrl-C does."""


class Training(ABC):
    """A training that runs step by step; a subclass defines a step.

    A step has two halves. :meth:`prepare` changes nothing that matters to later steps, so Ctrl-C may end it.
    :meth:`learn` changes the weights, and is followed by the rows of the step: Ctrl-C waits until they are written.
    """

    def __init__(self, steps: int, step: int = 0) -> None:
        self.steps, self.step = steps, step
        self._saved_step = self._recorded_step = step
        self._stop_waits = self._stop_asked = self._stopped_twice = False

    @abstractmethod
    def prepare(self) -> Any:
        """Return what the next step learns from."""

    @abstractmethod
    def learn(self, prepared: Any) -> Any:
        """Change the weights, count the step and return its result."""

    @abstractmethod
    def record(self, result: Any) -> None:
        """Write the row of a step."""

    @abstractmethod
    def report(self, result: Any) -> None:
        """Do what is due after a step: show its row, evaluate."""

    @abstractmethod
    def checkpoint_due(self) -> bool:
        """Return True when a checkpoint is due after this step."""

    @abstractmethod
    def save(self) -> None:
        """Save a checkpoint of the steps taken."""

    def is_sound(self) -> bool:
        """Return whether the weights should be saved."""
        return True

    def take_steps(self) -> None:
        """Take the steps that are left.

        Ctrl-C and SIGTERM end it with a ``KeyboardInterrupt``, and any error ends it too; in both cases a checkpoint of
        the last step whose row was written is saved first. A second signal stops at once and saves nothing.
        """
        with self._signals_handled():
            generators = generator_states()
            try:
                while self.step < self.steps:
                    prepared = self.prepare()
                    with self._stop_delayed():
                        result = self.learn(prepared)
                        self.record(result)
                        self._recorded_step = self.step
                        self.report(result)
                        if self.checkpoint_due():
                            self._save()
                        generators = generator_states()
            except BaseException as error:
                recorded = self.step == self._recorded_step > self._saved_step
                if recorded and self.is_sound() and not self._stopped_twice:
                    # What was prepared of the next step, which comes again, may have drawn from them.
                    restore_generators(*generators)
                    try:
                        self._save()
                    except Exception as second:
                        error.add_note(f"no checkpoint of step {self.step} could be saved either: {second}")
                raise

    def _save(self) -> None:
        self.save()
        self._saved_step = self.step

    @contextlib.contextmanager
    def _stop_delayed(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM wait for the end of the block."""
        self._stop_waits = True
        yield
        self._stop_waits = False
        if self._stop_asked:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _signals_handled(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM by :meth:`_interrupt`.

        It works in the main thread, where Python handles signals. A process that ignores a signal, such as one that a
        shell started in the background, keeps ignoring it.
        """
        self._stop_waits = self._stop_asked = self._stopped_twice = False
        former = {
            number: handler for number in STOPS if (handler := signal.getsignal(number)) not in (None, signal.SIG_IGN)
        }
        if threading.current_thread() is not threading.main_thread():
            former.clear()
        try:
            for number in former:
                signal.signal(number, self._interrupt)
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._stopped_twice = self._stop_asked
        if not self._stop_waits or self._stopped_twice:
            raise KeyboardInterrupt
        self._stop_asked = True
        # Standard error refuses a write from a handler that interrupts another write.
        with contextlib.suppress(RuntimeError):
            print("\nstopping after this step; Ctrl-C again stops at once", file=sys.stderr)
