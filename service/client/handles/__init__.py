"""What calls give back to work on with: studies, trials, fronts, and how they are shown."""
