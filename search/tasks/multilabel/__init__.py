"""Data sets whose samples have any of several labels each."""
