"""What the server's faces share: who calls, what they may see, and how much of it."""
