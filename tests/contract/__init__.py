"""The contract of DESIGN.md: each row a test file, each kind of module in zoo.py a case of it."""
