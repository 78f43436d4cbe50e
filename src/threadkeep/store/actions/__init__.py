"""The use cases: plain functions of a connection. They commit nothing and know nothing of asyncio."""
