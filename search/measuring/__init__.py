"""Measuring: a model's throughput and memory, devices, and the lock that keeps a device free."""
