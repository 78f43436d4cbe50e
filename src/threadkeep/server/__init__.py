"""The server: OpenAI's Conversations and Responses, the REST API, and the recorder, over one store."""
