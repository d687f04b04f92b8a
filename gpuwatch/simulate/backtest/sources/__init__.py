"""Histories that were not recorded for a backtest: a range of a Prometheus, and the ledger's kept rounds.

The flow: `window` says which time is asked about; `prometheus` (by `questions` and `steps`) and `rounds` fold what they
are added to `nodes`, chunk by chunk, and those make the `History` that everything else of a backtest reads.
"""
