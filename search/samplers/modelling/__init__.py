"""Models of what configurations do and cost, for samplers that choose by them."""
