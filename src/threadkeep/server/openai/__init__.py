"""OpenAI's Conversations and Responses: one module for each kind of object, and the application over them."""
