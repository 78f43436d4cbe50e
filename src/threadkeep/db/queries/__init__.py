"""Functions that return statements; none of them runs one."""
