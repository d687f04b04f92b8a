"""What owners and operators are told of: a notice before a stop, its withdrawal, and what was done."""
