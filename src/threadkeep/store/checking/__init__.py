"""Checking a database: what does not fit together is found, explained and, if asked, mended."""
