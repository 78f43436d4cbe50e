"""OpenAI's Chat Completions API, and the many servers that speak it."""
