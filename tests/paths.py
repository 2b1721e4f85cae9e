"""Folders that tests look into."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
REALDATA = Path(os.environ.get("VPO_REALDATA") or ROOT.parent / "shared" / "realdata")
"""Rows of published data sets; tests that need them skip where the folder is absent."""
