"""Studies, their spaces and samplers, their coordinator, and the workers that train."""
