"""Mazes: generator, simulator, exact front, and the two environments."""
