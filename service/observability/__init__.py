"""What the service tells of itself: metrics, logs, traces, and the state of devices."""
