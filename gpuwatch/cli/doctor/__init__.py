"""`gpuwatch doctor`: what keeps an agent or a controller from its work, told with a remedy. Nothing is changed.

`report` is the words, `ailments` every flaw that can be found, `running` the checks with their time limits; the other
rooms look: `host`, `devices`, `doors`, `certificates`, `ledger`, `cloud`, `signals`.
"""
