"""What comes out: posteriors, likelihood fits, and their files."""
