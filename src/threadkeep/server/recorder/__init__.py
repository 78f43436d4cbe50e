"""A recorder between applications and providers: calls pass through unchanged, and are stored on the way."""
