"""The processes of one machine: the supervisor, and what its children run."""
