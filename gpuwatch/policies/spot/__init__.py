"""PURE: where to run what may be interrupted, how much of a pool may be spot, and when to fall back to on demand.

What a policy here knows of an offer comes from the pool's own past. The backtest (`gpuwatch recommend spot`) calls the
same functions.
"""
