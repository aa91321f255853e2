"""Studies: submit, look at, change, cancel."""
