"""`gpuwatch doctor`: what keeps an agent or a controller from working, and how to correct it. It changes nothing.

`findings.tsv` lists every problem, `report` makes text and JSON, `runner` runs the checks with their time limits. The
checks are in `host`, `devices`, `ports`, `certificates`, `ledger`, `cloud`, `signals` and `tags`.
"""
