"""Bringing a conversation up to date with a history that a client keeps itself."""
