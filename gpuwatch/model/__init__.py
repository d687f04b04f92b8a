"""The nouns: frozen, slotted, keyword-only values. None means not known, 0.0 means measured zero."""
