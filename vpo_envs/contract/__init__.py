"""What the contract in ``core.py`` rests on; a reader of an environment need not open it."""
