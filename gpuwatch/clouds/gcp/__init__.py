"""Google Compute Engine and its managed instance groups."""
