"""Idle policies over recorded history: what each would have saved and cost, before any is trusted with machines.

The flow: `gaps` makes idle gaps of a recording; `compare` charges every policy for every gap; `checked` plays a bounded
part of it through the real controller and watches; `report` puts both together for tools, `text` for terminals and
`page` for browsers. docs/backtest.md defines every figure.
"""
