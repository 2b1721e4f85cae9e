"""Pages with a script: data and assets become one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import uuid4

from vpo_agent.pages.page import STYLE
from vpo_envs.common.wording import visible

MAX_BYTES = 3_000_000
"""Size of the largest page."""


def mark(command: str) -> str:
    """Return what tells the pages of a command from other files."""
    return f'<meta name="generator" content="vpo {command}">'


def transcripts_of(path: Path) -> Path:
    """Return where ``vpo show`` writes the page of a run, an evaluation or a pool by default."""
    return path / "transcripts.html" if path.is_dir() else path.with_suffix(".html")


def check_out(out: Path, command: str) -> None:
    """Raise a ValueError unless ``out`` is new, or a page of this command, which is replaced."""
    if out.is_dir():
        raise ValueError(f"{str(out)!r} is a folder, not a file: choose another --out")
    if out.exists() and mark(command).encode() not in out.read_bytes()[:2000]:
        raise ValueError(f"{str(out)!r} holds something other than a page of vpo {command}: choose another --out")


def fill(page: str, command: str, scripts: Sequence[str], title: str, data: Mapping[str, Any]) -> str:
    """Return a page of a command. Its policy allows the style and the script by their hashes, and nothing else."""
    folder = files("vpo_agent.explore") / "assets"
    style = STYLE + (folder / "page.css").read_text(encoding="utf-8")
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in scripts)
    rules = ["default-src 'none'", f"style-src '{_hash(style)}'", f"script-src '{_hash(script)}'", "base-uri 'none'"]
    # Without a "<", nothing in the data can end its script element.
    written = json.dumps(_visible(data), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    fields = {
        "mark": mark(command),
        "policy": "; ".join([*rules, "form-action 'none'"]),
        "title": escape(visible(title)),
        "style": style,
        "data": written,
        "script": script,
    }
    template = "".join((folder / name).read_text(encoding="utf-8") for name in ("head.html", page))
    return re.sub("@([a-z]+)@", lambda field: fields[field[1]], template)


def _visible(value: Any) -> Any:
    """Return data with every text, also in their parts, as :func:`visible` shows it."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(name): _visible(inner) for name, inner in value.items()}
    return [_visible(inner) for inner in value] if isinstance(value, list | tuple) else value


def write_page(out: Path, text: str) -> None:
    """Write a page, completely or not at all; ValueError if that fails."""
    aside = out.with_name(f".{out.name}.{uuid4().hex}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(out)
    except OSError as error:
        raise ValueError(f"cannot write {str(out)!r}: {error.strerror}") from error
    finally:
        aside.unlink(missing_ok=True)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
