"""Users' files, read in a process of their own with limits; nothing here needs torch."""
