"""Users' own data as a task: divided, scaled, and trained for by the problem they pose."""
