"""What stands between our rows and Optuna's samplers; one file for each thing they need."""
