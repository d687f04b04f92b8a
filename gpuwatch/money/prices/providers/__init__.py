"""Each cloud's own price list, read over its API."""
