"""Networks with structured weight matrices. Importing this runs no tensor operation."""
