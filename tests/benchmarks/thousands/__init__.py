"""What thousands of trials cost: in one study, and over a hundred studies."""
