"""Texts for several personas: checks, scoring, generator, exact front, rows of IFEval, and the environment."""
