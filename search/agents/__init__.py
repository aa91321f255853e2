"""The machines that run attempts: slots, processes, and what they say to the service."""
