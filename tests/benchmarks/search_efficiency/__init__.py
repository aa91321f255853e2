"""How many epochs a search needs: samplers and stopping rules replayed on real curves."""
