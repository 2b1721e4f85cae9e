"""Score many responses in parallel: threads, processes, Ray."""
