"""Tool calls: reader, scoring, generator, rows of ToolRL, and the environment."""
