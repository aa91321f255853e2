"""The table of a study's trials: its columns, and which rows are shown."""
