"""The tables of the papers, row by row."""
