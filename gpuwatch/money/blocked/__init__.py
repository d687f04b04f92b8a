"""Money that machines without use cost, and what holds it back from being saved."""
