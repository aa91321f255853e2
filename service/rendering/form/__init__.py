"""The form of a study: its fields, what they hold, and the spec that follows."""
