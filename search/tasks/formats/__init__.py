"""Parsers of the files that tasks read."""
