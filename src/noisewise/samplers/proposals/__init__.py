"""Where proposals come from, and how they are weighed."""
