"""PURE: what machines cost, what of it was of use, where spending is heading, and what to commit to."""
