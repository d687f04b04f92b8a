"""Azure: virtual machines and scale sets."""
