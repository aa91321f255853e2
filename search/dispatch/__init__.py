"""Who runs what, where: the coordinator, and the rules by which slots are given."""
