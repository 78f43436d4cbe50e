"""The Core tables of the models, for statements on hot paths."""

from __future__ import annotations

from typing import Final, cast

from sqlalchemy import Table

from threadkeep.db import models
from threadkeep.db.base import Base


def _table(row: type[Base]) -> Table:
    return cast("Table", row.__table__)  # declared as FromClause; a mapped class of ours always has a Table


tenants: Final = _table(models.conversations.TenantRow)
configs: Final = _table(models.conversations.ConfigRow)
conversations: Final = _table(models.conversations.ConversationRow)
conversation_labels: Final = _table(models.conversations.ConversationLabelRow)
branches: Final = _table(models.conversations.BranchRow)
items: Final = _table(models.items.ItemRow)
blobs: Final = _table(models.items.BlobRow)
item_blobs: Final = _table(models.items.ItemBlobRow)
tool_definitions: Final = _table(models.conversations.ToolDefinitionRow)
tool_sets: Final = _table(models.conversations.ToolSetRow)
responses: Final = _table(models.responses.ResponseRow)
stream_parts: Final = _table(models.responses.StreamPartRow)
response_bodies: Final = _table(models.responses.ResponseBodyRow)
appends: Final = _table(models.responses.AppendRow)
search_documents: Final = _table(models.items.SearchDocumentRow)
context_caches: Final = _table(models.conversations.ContextCacheRow)
usage_records: Final = _table(models.usage.UsageRecordRow)
usage_days: Final = _table(models.usage.UsageDayRow)
usage_daily: Final = _table(models.usage.UsageDailyRow)
usage_daily_models: Final = _table(models.usage.UsageDailyModelRow)
