"""Many criteria in, few objectives out: finding a decomposition, its file, and the environment that uses it."""
