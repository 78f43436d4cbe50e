"""Moving what is stored: exports, copies to another database, backups, and readable transcripts."""
