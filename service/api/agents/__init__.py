"""Worker machines: they join with a key, and ask what to run."""
