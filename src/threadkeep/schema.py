"""The database schema: `upgrade`, `check`, `current`, `downgrade` and `upgrade_sql`."""

from threadkeep.db.schema import HEAD, check, current, downgrade, upgrade, upgrade_sql

__all__ = ["HEAD", "check", "current", "downgrade", "upgrade", "upgrade_sql"]
