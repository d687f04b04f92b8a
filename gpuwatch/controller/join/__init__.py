"""Hosts join: the controller is a small certificate authority for its agents.

`authority` makes certificates, `register` remembers tokens and hosts, `door` answers hosts, `settings` is what people
choose. All of it is in one folder, which moves with the controller.
"""
