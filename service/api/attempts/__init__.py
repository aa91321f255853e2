"""What attempts of trials say while they run, with a lease token as their credential."""
