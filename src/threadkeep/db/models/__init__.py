"""The tables: one place that says what is stored."""

from threadkeep.db.base import Base
from threadkeep.db.models.caches import ContextCacheRow
from threadkeep.db.models.conversations import (
    BranchRow,
    ConfigRow,
    ConversationLabelRow,
    ConversationRow,
    TenantRow,
)
from threadkeep.db.models.items import BlobRow, ItemBlobRow, ItemRow
from threadkeep.db.models.responses import AppendRow, ResponseBodyRow, ResponseRow, StreamPartRow
from threadkeep.db.models.search import SearchDocumentRow
from threadkeep.db.models.tools import ToolDefinitionRow, ToolSetRow
from threadkeep.db.models.usage import UsageDailyModelRow, UsageDailyRow, UsageDayRow, UsageRecordRow

__all__ = [
    "AppendRow",
    "Base",
    "BlobRow",
    "BranchRow",
    "ConfigRow",
    "ContextCacheRow",
    "ConversationLabelRow",
    "ConversationRow",
    "ItemBlobRow",
    "ItemRow",
    "ResponseBodyRow",
    "ResponseRow",
    "SearchDocumentRow",
    "StreamPartRow",
    "TenantRow",
    "ToolDefinitionRow",
    "ToolSetRow",
    "UsageDailyModelRow",
    "UsageDailyRow",
    "UsageDayRow",
    "UsageRecordRow",
]
