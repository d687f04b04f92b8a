"""BLAKE2 as Python itself has it: `hashlib` would load OpenSSL, some 3.6 MiB in every agent."""

try:
    from _blake2 import blake2b
except ImportError:  # a Python that has OpenSSL's hashes alone
    from hashlib import blake2b

__all__ = ["blake2b"]
