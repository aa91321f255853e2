"""Studies under random SIGKILLs, and proof that nothing came of them: `python -m tests.chaos`."""
