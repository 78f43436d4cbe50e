"""The Core tables of the models, for statements on hot paths."""

from __future__ import annotations

from typing import Final, cast

from sqlalchemy import Table

from threadkeep.db import models
from threadkeep.db.base import Base


def _table(row: type[Base]) -> Table:
    return cast("Table", row.__table__)  # declared as FromClause; a mapped class of ours always has a Table


tenants: Final = _table(models.TenantRow)
configs: Final = _table(models.ConfigRow)
conversations: Final = _table(models.ConversationRow)
conversation_labels: Final = _table(models.ConversationLabelRow)
branches: Final = _table(models.BranchRow)
items: Final = _table(models.ItemRow)
blobs: Final = _table(models.BlobRow)
item_blobs: Final = _table(models.ItemBlobRow)
tool_definitions: Final = _table(models.ToolDefinitionRow)
tool_sets: Final = _table(models.ToolSetRow)
responses: Final = _table(models.ResponseRow)
stream_parts: Final = _table(models.StreamPartRow)
response_bodies: Final = _table(models.ResponseBodyRow)
appends: Final = _table(models.AppendRow)
search_documents: Final = _table(models.SearchDocumentRow)
context_caches: Final = _table(models.ContextCacheRow)
usage_records: Final = _table(models.UsageRecordRow)
usage_days: Final = _table(models.UsageDayRow)
usage_daily: Final = _table(models.UsageDailyRow)
usage_daily_models: Final = _table(models.UsageDailyModelRow)
