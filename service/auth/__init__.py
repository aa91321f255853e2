"""Who is let in, through which socket, and what they may do."""
