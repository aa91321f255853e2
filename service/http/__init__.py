"""What holds for every request: limits, connections, problems, byte ranges, logging."""
