"""The site of the documentation: `make site`."""
