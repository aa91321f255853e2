"""Trials: what was tried, what came of it, and its files."""
