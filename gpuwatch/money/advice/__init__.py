"""Which instance types, sizes and commitments would cost less."""
