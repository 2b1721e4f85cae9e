"""The one bound that tests put on time: speed is measured by the benchmarks, since a test may share its machine."""

LINEAR_S = 30.0
"""Seconds of processor time that reading a megabyte stays far below if it is linear, and far exceeds if quadratic."""
