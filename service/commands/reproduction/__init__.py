"""`reproduce`: which rows are trained, what came of them, and how that is shown."""
