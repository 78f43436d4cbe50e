"""Conversations that providers refuse as they stand, by provider, each with the place that states or reports it."""
