"""Use cases: the only layer that opens a transaction."""
