"""What people and programs do on the host: one module a signal, `registry.py` has the table of them all."""
