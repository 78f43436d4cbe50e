"""The database layer: tables, statements, rows. It knows the domain types and no wire format."""
