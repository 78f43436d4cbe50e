"""The database schema: `upgrade`, `check`, `current`, `downgrade`, `upgrade_sql`, and the names of its `TABLES`."""

from threadkeep.db.schema import HEAD, TABLES, check, current, downgrade, upgrade, upgrade_sql

__all__ = ["HEAD", "TABLES", "check", "current", "downgrade", "upgrade", "upgrade_sql"]
