"""Integrations with other software: each module needs its own extra, and nothing in threadkeep imports them."""
