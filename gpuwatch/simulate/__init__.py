"""Fleets that do not exist: the demo, the simulated cloud, and the backtest."""
