"""The processes of the host, and whose work each of them is."""
