"""The commands, one typed dataclass each: its fields are the flags, and `run` executes the command and returns the exit code."""
