"""The words from which personas, their phrases and the texts that satisfy them are drawn."""

from __future__ import annotations

import tomllib
from importlib.resources import files

WORDS: dict[str, list[str]] = {
    kind: words.split()
    for kind, words in tomllib.loads(files(__package__).joinpath("vocabulary.toml").read_text("utf-8")).items()
}
"""Words by the name that ``vocabulary.toml`` gives their kind."""
