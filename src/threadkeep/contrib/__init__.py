"""Integrations with other software: each module needs its own extra, and only its command imports it."""
