"""Check the contract of an environment, and report how far its objectives conflict."""
