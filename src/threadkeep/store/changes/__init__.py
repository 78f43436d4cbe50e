"""The change feed: writing it with what changes, reading it, following it, and waking those who follow it."""
