"""PURE: how long an idle node waits before it is reclaimed: fixed, break-even, or learned."""
