"""The tables: one place that says what is stored, as declarative classes, and as tables for statements.

All keys begin with `tenant_id`, except the one of `tenants`. `threadkeep.models` has the classes for applications.
"""

# fmt: off
# isort: off
from typing import Final

from threadkeep.db.base import METADATA
from threadkeep.db.models.conversation import (
    BranchRow, ConfigRow, ContextCacheRow, ConversationLabelRow, ConversationReadRow, ConversationRow,
    ConversationStateRow, ToolDefinitionRow, ToolSetRow,
)
from threadkeep.db.models.item import (
    ApprovalRow, BlobRow, ItemBlobRow, ItemFeedbackRow, ItemLabelRow, ItemRow, SearchDocumentRow, UploadRow,
)
from threadkeep.db.models.response import (
    ResponseBodyRow, ResponseRow, StreamPartRow, UsageDailyModelRow, UsageDailyRow, UsageDailySketchRow, UsageDayRow,
    UsageRecordRow,
)
from threadkeep.db.models.tenant import ApiKeyRow, AppendRow, ChangeRow, TenantRow
# fmt: on
# isort: on

tenants: Final = TenantRow.__table__
api_keys: Final = ApiKeyRow.__table__
appends: Final = AppendRow.__table__
changes: Final = ChangeRow.__table__
configs: Final = ConfigRow.__table__
tool_definitions: Final = ToolDefinitionRow.__table__
tool_sets: Final = ToolSetRow.__table__
context_caches: Final = ContextCacheRow.__table__
conversations: Final = ConversationRow.__table__
conversation_labels: Final = ConversationLabelRow.__table__
conversation_states: Final = ConversationStateRow.__table__
conversation_reads: Final = ConversationReadRow.__table__
branches: Final = BranchRow.__table__
items: Final = ItemRow.__table__
item_labels: Final = ItemLabelRow.__table__
item_feedback: Final = ItemFeedbackRow.__table__
approvals: Final = ApprovalRow.__table__
search_documents: Final = SearchDocumentRow.__table__
blobs: Final = BlobRow.__table__
uploads: Final = UploadRow.__table__
item_blobs: Final = ItemBlobRow.__table__
responses: Final = ResponseRow.__table__
stream_parts: Final = StreamPartRow.__table__
response_bodies: Final = ResponseBodyRow.__table__
usage_records: Final = UsageRecordRow.__table__
usage_days: Final = UsageDayRow.__table__
usage_daily: Final = UsageDailyRow.__table__
usage_daily_models: Final = UsageDailyModelRow.__table__
usage_daily_sketches: Final = UsageDailySketchRow.__table__

# fmt: off
__all__ = [
    "METADATA", "ApiKeyRow", "AppendRow", "ApprovalRow", "BlobRow", "BranchRow", "ChangeRow", "ConfigRow",
    "ContextCacheRow", "ConversationLabelRow", "ConversationReadRow", "ConversationRow", "ConversationStateRow",
    "ItemBlobRow", "ItemFeedbackRow", "ItemLabelRow", "ItemRow", "ResponseBodyRow", "ResponseRow",
    "SearchDocumentRow", "StreamPartRow", "TenantRow", "ToolDefinitionRow", "ToolSetRow", "UploadRow",
    "UsageDailyModelRow", "UsageDailyRow", "UsageDailySketchRow", "UsageDayRow", "UsageRecordRow", "api_keys",
    "appends", "approvals", "blobs", "branches", "changes", "configs", "context_caches", "conversation_labels",
    "conversation_reads", "conversation_states", "conversations", "item_blobs", "item_feedback", "item_labels",
    "items", "response_bodies", "responses", "search_documents", "stream_parts", "tenants", "tool_definitions",
    "tool_sets", "uploads", "usage_daily", "usage_daily_models", "usage_daily_sketches", "usage_days",
    "usage_records",
]
# fmt: on
