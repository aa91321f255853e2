"""What `freeze_thaw` chooses by: learning curves, final errors, and what each option is worth."""
