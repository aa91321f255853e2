"""Results for trackers of experiments: what a run holds, and one file for each tracker."""
