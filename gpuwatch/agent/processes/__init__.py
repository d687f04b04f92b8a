"""The processes of the host, and the kind of each."""
