"""Programming problems with one objective for each test."""
