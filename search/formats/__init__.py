"""Parsers of files that tasks and uploads read; nothing here needs torch."""
