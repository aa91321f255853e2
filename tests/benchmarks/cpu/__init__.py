"""What `tests.benchmarks.sequences` and `tests.benchmarks.forms` are made of."""
