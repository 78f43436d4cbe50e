"""The tests of threadkeep. How to run them: docs/development.md."""
