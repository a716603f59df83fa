"""A run of Monte Carlo EM: its position, the climb, the settling at the top, what is measured there, and its log."""
