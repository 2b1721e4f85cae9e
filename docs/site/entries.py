"""The page of the entries in leaderboard/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from template import DOCS

from vpo_agent.bench.entry import entry_table, read_entry
from vpo_agent.bench.tasks import TRACKS, VERSION
from vpo_agent.pages.page import markdown_table
from vpo_agent.report.tables import interval, number

ENTRIES = DOCS.parent / "leaderboard"


def leaderboard() -> str:
    """Return the page: a table of each track, the highest score first, then the tasks of each entry."""
    entries = {path.name: read_entry(path) for path in sorted(ENTRIES.glob("*.json"))}
    entries = dict(sorted(entries.items(), key=lambda one: -one[1]["score"]["mean"]))
    lines = [
        "# Leaderboard",
        "",
        f"Entries of `{VERSION}`, made from `leaderboard/`: what [the score](bench.md) means, and how to add one.",
    ]
    for track in TRACKS:
        shown = {name: entry for name, entry in entries.items() if entry["track"] == track}
        body = [_row(entry) for entry in shown.values()]
        lines += ["", f"## The {track} track", "", markdown_table(HEAD, body, "lrr" + "r" * len(MEANS))]
        for name, entry in shown.items():
            lines += ["", f"### {entry['name']}, {track}", "", f"`leaderboard/{name}`", "", entry_table(entry)]
    return "\n".join(lines) + "\n"


MEANS = ("utility of three", "utility@1", "utility@30", "coverage", "diversity", "read")
HEAD = ("model", "score", "95 % interval", "three", "@1", "@30", "coverage", "diversity", "read")


def _row(entry: Mapping[str, Any]) -> list[str]:
    """The row of an entry; all but the score are plain means over tasks."""
    score, rows = entry["score"], entry["tasks"].values()
    means = [number(sum(row[one] for row in rows) / len(rows)) for one in MEANS]
    return [entry["name"], number(score["mean"]), interval(score["low"], score["high"]), *means]
