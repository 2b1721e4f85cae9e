"""Code that knows no environment: the wording of messages, required packages, and modules that a user names."""
