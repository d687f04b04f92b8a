"""One round after the other: observe, decide, record, act, settle."""
