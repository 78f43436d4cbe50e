"""The tables: one place that says what is stored.

A `key` column is a part of the primary key, a `column` takes no NULL, an `optional` one does. All keys begin with
`tenant_id`, except that of `tenants`.
"""

# fmt: off
# isort: off
from threadkeep.db.base import METADATA
from threadkeep.db.tables.conversations import (
    branches, configs, context_caches, conversation_labels, conversation_reads, conversation_states, conversations,
    tenants, tool_definitions, tool_sets,
)
from threadkeep.db.tables.items import (
    approvals, blobs, item_blobs, item_feedback, item_labels, items, search_documents, uploads,
)
from threadkeep.db.tables.keys import api_keys
from threadkeep.db.tables.responses import appends, changes, response_bodies, responses, stream_parts
from threadkeep.db.tables.usage import usage_daily, usage_daily_models, usage_days, usage_records

__all__ = [
    "METADATA", "api_keys", "appends", "approvals", "blobs", "branches", "changes", "configs", "context_caches",
    "conversation_labels", "conversation_reads", "conversation_states", "conversations", "item_blobs",
    "item_feedback", "item_labels", "items", "response_bodies", "responses", "search_documents", "stream_parts",
    "tenants", "tool_definitions", "tool_sets", "uploads", "usage_daily", "usage_daily_models", "usage_days",
    "usage_records",
]
# fmt: on
# isort: on
