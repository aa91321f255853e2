"""Pages that list things, and those that what is listed leads to."""
