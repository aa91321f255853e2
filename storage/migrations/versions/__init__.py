"""One file per version of the tables, each with the way up and the way down."""
