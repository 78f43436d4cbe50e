"""Explicit context caches: what to do about one, and requests that name one."""
