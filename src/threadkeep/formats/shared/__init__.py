"""What several formats have in common, one subject a module."""
