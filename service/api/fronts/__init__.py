"""What a study found: its front, figures, report, bundle and tables."""
