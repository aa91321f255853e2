"""What commands show: tables, progress bars, and a study that is followed."""
