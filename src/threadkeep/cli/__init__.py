"""The command line ``threadkeep``; docs/cli.md describes it."""

from __future__ import annotations

from threadkeep.cli.app import app, main

__all__ = ["app", "main"]
