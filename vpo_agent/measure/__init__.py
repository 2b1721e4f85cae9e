"""Measurement: best@k, expected utility, Pareto fronts, intervals, and the pools they are computed from."""
