"""Numbers in tables."""

from __future__ import annotations

from vpo_agent.report.tables import interval, number


def test_a_bound_just_below_zero_is_told_from_zero_only_where_signs_are_shown() -> None:
    assert interval(-0.0004, 0.0174, signed=True) == "[-0.000, +0.017]"
    assert [number(value, signed=True) for value in (0.0, -0.0, 0.0004)] == ["+0.000", "+0.000", "+0.000"]
    assert number(-0.0004) == "0.000"
