"""Questions whose documents must be opened: the environment answers, and every document costs something."""
