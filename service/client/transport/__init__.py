"""How calls are described, and the two ways to perform them: at once, and awaited."""
