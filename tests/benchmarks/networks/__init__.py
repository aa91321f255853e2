"""Published networks, samples for them, and other tools, for `tests.benchmarks.any_network`."""
