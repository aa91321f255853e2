"""What a tenant may have, and what it uses."""
