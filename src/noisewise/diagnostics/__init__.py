"""How much draws can be trusted: weighted ones, dependent ones, and ranks that should be uniform."""
