"""Multi-hop questions with citations: generator, reader of the published rows, and the environment."""
