"""The tasks of the suite, one package each."""
