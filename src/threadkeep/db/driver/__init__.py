"""Statements of the hot paths, compiled once for each dialect and executed on the cursor of the driver."""

from threadkeep.db.driver.executors import Row
from threadkeep.db.driver.statements import (
    LazyRow,
    Parameters,
    RowReader,
    Statement,
    TableRows,
    insert_rows,
    insert_statement,
)

__all__ = ["LazyRow", "Parameters", "Row", "RowReader", "Statement", "TableRows", "insert_rows", "insert_statement"]
