"""Open Responses, and OpenAI's Responses API, which it describes."""
