"""Word problems solved in steps: generator, reader of the rows of GSM8K, scoring, exact front, and the environment."""
