"""The commands, one typed dataclass each: its fields are the flags, `run` does it and returns the exit code."""
