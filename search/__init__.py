"""Studies, their spaces and samplers, the coordinator that runs them, and the workers that train."""
