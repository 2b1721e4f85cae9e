"""Checks of the environment contract, and how far an environment's objectives conflict."""
