"""The REST API for web and mobile applications: conversations, messages, branches, search, usage and media."""
