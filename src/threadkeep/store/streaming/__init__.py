"""Streamed responses: stored while they arrive, and recovered when their recorder is gone."""
