"""Collections: several tasks or data sets at once, with an ordinary study for each."""
