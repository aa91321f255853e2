"""Files that users send: read, limited, stored before their rows, and cleaned up."""
