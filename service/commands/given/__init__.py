"""What people type: ids in short, answers to questions, and options by their names."""
