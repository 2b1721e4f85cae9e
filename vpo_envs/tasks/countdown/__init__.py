"""Expressions for three targets: generator, reader of expressions, exact front, and the environment."""
