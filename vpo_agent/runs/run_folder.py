"""The folder of one run: config, metrics, timings, TensorBoard events, checkpoints, figures."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from vpo_agent.config import CONFIG_FILE, MAY_CHANGE_ON_RESUME, TrainConfig, flat_settings, read_config
from vpo_agent.errors import DiskFull, RunStopped
from vpo_agent.runs.continuing import resume_options
from vpo_agent.runs.inputs import check_inputs, hash_inputs, note_inputs
from vpo_agent.runs.loggers import Logger, open_logger
from vpo_agent.runs.rows import read_rows, rows_until
from vpo_agent.runs.run_lock import LOCK_FILE, RunLock
from vpo_agent.runs.whole_files import checkpoints, write_text_atomically
from vpo_envs.core import AnyEnv
from vpo_envs.registration import registering_module

TRANSCRIPTS = "transcripts.jsonl"
RESULTS = "results.json"
"""The last file of a run, which says that it is finished."""
_NO_RUN_YET = {LOCK_FILE, f".{CONFIG_FILE}.writing"}
"""Files of a process that was killed before its run had a config."""
_FULL = {errno.ENOSPC: "no space is left", errno.EDQUOT: "the quota is used up", errno.EFBIG: "a file grew too large"}


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: Path, config: TrainConfig, *, overwrite: bool = False) -> None:
        """Name the folder; nothing is written or deleted yet."""
        self.path = path
        self.config = config
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self.timings = path / "timings.jsonl"
        self.transcripts = path / TRANSCRIPTS
        self._overwrite = overwrite
        self.changed_inputs: list[str] = []
        """What has changed since the run began, and was accepted when it was resumed."""
        self._inputs: dict[str, str] = {}
        self._lock: RunLock | None = None

    @classmethod
    def open(cls, config: TrainConfig, *, resume: bool, overwrite: bool) -> RunFolder:
        """Choose the folder, and check that it may be used; a run in it stays locked as long as this object lives."""
        name = config.name
        if name is None:
            if resume:
                raise ValueError("resume needs the name of the run: give --name")
            task = config.env.rsplit("/", 1)[-1].split("-")[0].lower()
            name = f"{task}-{config.method}-seed{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = cls(config.runs_dir / name, config, overwrite=overwrite)
        saved = folder.path / CONFIG_FILE
        if saved.is_file():
            with folder._writing():
                folder._lock = RunLock.take(folder.path)
        if resume:
            if not saved.is_file():
                raise ValueError(
                    f"there is no run to resume in {str(folder.path)!r}: give another --name or --runs-dir, or leave "
                    "--resume out"
                )
            settings = read_config(saved)
            folder.config = with_date(config, settings.get("date"))
            folder.check_settings(settings, f"the run in {str(folder.path)!r}")
        else:
            folder.config = with_date(config)
            folder._check_unused()
        return folder

    def compare_inputs(self, environments: Sequence[AnyEnv], *, resume: bool, accept_changes: bool) -> None:
        """Hash what the run reads, and compare it with what a resumed run has read; :meth:`start` notes it.

        Args:
            environments: The environments of the run.
            resume: Whether the run is resumed.
            accept_changes: Whether it may go on where something has changed.

        Raises:
            ValueError: Something has changed; the message names it.
        """
        config = self.config
        self._inputs = hash_inputs(
            config.env, config.env_kwargs, environments, imports=config.imports, model=config.model
        )
        if resume:
            owner = f"the run in {str(self.path)!r}"
            self.changed_inputs = check_inputs(self.path, self._inputs, owner, accept=accept_changes)

    def start(self, step: int) -> None:
        """Lock the folder, delete what is overwritten, write config and inputs, and drop the rows after ``step``.

        If inputs have changed, what was measured with the former inputs is deleted: the pools before training and the
        results. The rows after ``step`` are written again; a line on standard error says so if they are all rows of the
        run, or if rows that are not written again are missing.

        Raises:
            ValueError: The folder cannot be written, another process is writing it or has done so since, or a line of
                the rows up to ``step`` is damaged.
        """
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            if self._lock is None:
                self._lock = RunLock.take(self.path)
                self._check_unused()
            if self._overwrite:
                for path in self.path.iterdir():
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path)
                    elif path.name not in (CONFIG_FILE, LOCK_FILE):
                        path.unlink()
            # Written first and deleted last, since it marks the folder as a run.
            config = self.config
            # With the module that registered the environment, so that other processes can do the same.
            if not config.imports and ":" not in config.env and (module := registering_module(config.env)):
                config = config.model_copy(update={"imports": [module]})
            write_text_atomically(self.path / CONFIG_FILE, json.dumps(config.grouped(), indent=2) + "\n")
            if self.changed_inputs:
                for path in (*self.path.glob("pool_before*.npz"), self.path / RESULTS):
                    path.unlink(missing_ok=True)
            if self._inputs:
                note_inputs(self.path, self._inputs, self.changed_inputs, step)
            self.checkpoints.mkdir(exist_ok=True)
            if not step and self.metrics.is_file() and self.metrics.stat().st_size:
                restart = "has no checkpoint yet: it starts again from step 0 and replaces the rows of metrics.jsonl"
                print(f"the run in {str(self.path)!r} {restart}", file=sys.stderr)
            for path in (self.metrics, self.timings, self.transcripts):
                write_text_atomically(path, rows_until(path, step))
            self._name_lost_rows(step)

    def add_transcripts(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append groups of responses, of which ``vpo show`` makes a page."""
        with self.transcripts.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())

    def has_row(self, kind: str, step: int) -> bool:
        """Return whether the metrics have a row of this kind, "train" or "eval", at this step."""
        return any(row["kind"] == kind and row["step"] == step for row in read_rows(self.metrics))

    def writer(self, step: int) -> MetricsWriter:
        """Return the writer of the rows after ``step``."""
        logger = open_logger(self.config.log, self.path, self.config.model_dump(mode="json"), step)
        return MetricsWriter(self.metrics, self.timings, logger)

    def check_held(self) -> None:
        """Raise RunStopped if the folder is gone, or another process writes it because its lock file was removed."""
        try:
            if self._lock is not None:
                self._lock.renew()
        except OSError as error:
            raise RunStopped(
                f"the folder of the run {str(self.path)!r} was deleted or replaced while the run was writing it "
                f"({error.strerror}): nothing more is written; start the run again"
            ) from error
        except ValueError as error:
            raise RunStopped(f"the lock file of this run was removed, and now {error}") from error

    @contextlib.contextmanager
    def room(self, last: Callable[[], Path | None] | None = None) -> Iterator[None]:
        """Turn errors of the disk into a RunStopped, a DiskFull if it is full.

        It names ``last()`` or the newest checkpoint.
        """
        outer = threading.excepthook

        def hook(thrown: threading.ExceptHookArgs) -> None:
            # TensorBoard writes in a thread of its own, and its errors are raised again in this one.
            if not isinstance(thrown.exc_value, OSError) or _why_full(thrown.exc_value) is None:
                outer(thrown)

        threading.excepthook = hook
        try:
            yield
        except (OSError, SafetensorError, RuntimeError) as error:
            reason = _why_full(error)
            if reason is None:
                if _is_inside(error, self.path):
                    raise RunStopped(f"cannot write the run in {str(self.path)!r}: {error}") from error
                raise
            saved = last() if last is not None else next(reversed(checkpoints(self.checkpoints)), None)
            kept = f"the last good checkpoint is {saved}" if saved else "there is no checkpoint yet"
            raise DiskFull(
                f"cannot write the run in {str(self.path)!r}, {reason}: make room, then continue with "
                f"{shlex.join(resume_options(self.config, self.path.name))}; {kept}"
            ) from error
        finally:
            threading.excepthook = outer

    def check_settings(self, saved: Mapping[str, Any], owner: str) -> None:
        """Raise ValueError unless this run may continue ``owner``, a run or checkpoint with the settings ``saved``."""
        for name, before, now in changed_settings(saved, self.config):
            if name not in MAY_CHANGE_ON_RESUME:
                way_out = "resume it with its own settings, or start another --name"
                raise ValueError(f"{owner} has {name}={before!r}, not {now!r}: {way_out}")

    def _name_lost_rows(self, step: int) -> None:
        """Say on standard error how many of the steps up to ``step`` have no row."""
        present = {row["step"] for row in read_rows(self.metrics) if row.get("kind") == "train"}
        if lost := step - len(present):
            print(f"{str(self.metrics)!r} lacks the rows of {lost} of the {step} steps done so far", file=sys.stderr)

    def _check_unused(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{str(self.path)!r} is a file, not a folder: choose another --name")
        if not self.path.exists() or {path.name for path in self.path.iterdir()} <= _NO_RUN_YET:
            return
        if not (self.path / CONFIG_FILE).is_file():
            reason = "is not the folder of a run, so it is not touched: choose another --name"
            raise ValueError(f"{str(self.path)!r} {reason}")
        if not self._overwrite:
            reason = "already holds a run: give --resume to continue it, --overwrite to delete it, or another --name"
            raise ValueError(f"{str(self.path)!r} {reason}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ValueError(f"cannot write the run folder {str(self.path)!r}: {error.strerror}") from error


class MetricsWriter:
    """Appends rows to ``metrics.jsonl`` and ``timings.jsonl``, and shows them in a logger.

    Timings have a file of their own, so that ``metrics.jsonl`` of two equal runs is equal byte by byte.
    """

    def __init__(self, metrics: Path, timings: Path, logger: Logger) -> None:
        """Open the files."""
        self._metrics = metrics.open("a", encoding="utf-8")
        self._timings = timings.open("a", encoding="utf-8")
        self._logger = logger

    def write(self, row: Mapping[str, Any]) -> None:
        """Add one row, which has ``kind`` and ``step``; numbers that are not finite become null, as JSON lacks them."""
        head = {"kind": row["kind"], "step": row["step"]}
        metrics: dict[str, Any] = {}
        timings: dict[str, Any] = {}
        shown: dict[str, float] = {}
        for name, value in row.items():
            if name in head:
                continue
            # Timings differ between equal runs.
            is_timing = name.startswith("seconds_") or name.endswith("_per_second")
            is_finite = not isinstance(value, float) or math.isfinite(value)
            (timings if is_timing else metrics)[name] = value if is_finite else None
            if is_finite and value is not None:
                shown[name] = value
        for file, values in ((self._metrics, metrics), (self._timings, timings)):
            if values:
                file.write(json.dumps({**head, **values}, allow_nan=False) + "\n")
                file.flush()
        self._logger.add(row["kind"], row["step"], shown)

    def sync(self) -> None:
        """Flush the rows to disk, so that no checkpoint is ahead of them."""
        os.fsync(self._metrics.fileno())
        os.fsync(self._timings.fileno())

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close everything; an error on closing must not hide the error that ends the run."""
        with contextlib.ExitStack() as stack:
            for opened in (self._logger, self._timings, self._metrics):
                if error is not None:
                    stack.enter_context(contextlib.suppress(OSError))
                stack.callback(opened.close)


def with_date(config: TrainConfig, saved: str | None = None) -> TrainConfig:
    """Return settings with a date: their own, the ``saved`` one of the run, or today's."""
    return config if config.date else config.model_copy(update={"date": saved or time.strftime("%Y-%m-%d")})


def changed_settings(saved: Mapping[str, Any], config: TrainConfig) -> list[tuple[str, Any, Any]]:
    """Return the name, the saved and the present value of each setting that differs, as JSON values.

    A setting that ``saved`` lacks because the setting is newer had its default. An unset date matches any date.
    """
    before = {**TrainConfig().model_dump(mode="json"), **flat_settings(saved)}
    now = config.model_dump(mode="json")
    undated = None in (before["date"], now["date"])
    names = [name for name, value in now.items() if before[name] != value and not (name == "date" and undated)]
    return [(name, before[name], now[name]) for name in names]


def _is_inside(error: Exception, folder: Path) -> bool:
    """Return whether the system refused a file in a folder."""
    name = error.filename if isinstance(error, OSError) else None
    return isinstance(name, str | Path) and Path(name).absolute().is_relative_to(folder.absolute())


def _why_full(error: Exception) -> str | None:
    if isinstance(error, OSError):
        return _FULL.get(error.errno or 0)
    # torch.save gives no reason: its writer finds itself at an unexpected position.
    if "inline_container" in str(error) and "unexpected pos" in str(error):
        return "a file was cut short"
    # safetensors has the system's error number only in its message.
    return next((reason for number, reason in _FULL.items() if f"(os error {number})" in str(error)), None)
