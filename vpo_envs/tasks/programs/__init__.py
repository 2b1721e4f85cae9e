"""Programs behind examples: the steps, the generator, and the environment in the small language and in Python."""
