"""What draws are worth: weights, chains, uniformity."""
