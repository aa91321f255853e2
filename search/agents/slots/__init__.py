"""The processes of a machine's slots, and the line on which their attempts speak."""
