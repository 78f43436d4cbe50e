"""The tables as read-only SQLAlchemy models, for an application's own ORM: joins, relationships and admin tools.

    from threadkeep import models

    select(models.Item).join(models.Item.conversation).where(models.Conversation.user_id == "ann")

Relationships lead from conversations to items, responses, branches, states and usage records, and back; from responses
to their items, bodies and usage records; from items to labels, feedback, approvals and media. All rows are there, of
all tenants, branches and statuses: conditions are the application's.

Changes go through a `Store`, which keeps counters, the search and the change feed in step. A flush that would insert,
update or delete a row of these models raises `sqlalchemy.exc.InvalidRequestError`, and writes nothing. Statements
(`insert`, `update` and `delete`) on them are not refused, and not supported.
"""

from __future__ import annotations

from typing import Final, NoReturn

from sqlalchemy import Connection, event
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Mapper

from threadkeep.db.base import METADATA, Base
from threadkeep.db.models import ApiKeyRow as ApiKey
from threadkeep.db.models import AppendRow as Append
from threadkeep.db.models import ApprovalRow as Approval
from threadkeep.db.models import BlobRow as Blob
from threadkeep.db.models import BranchRow as Branch
from threadkeep.db.models import ChangeRow as Change
from threadkeep.db.models import ConfigRow as Config
from threadkeep.db.models import ContextCacheRow as ContextCache
from threadkeep.db.models import ConversationLabelRow as ConversationLabel
from threadkeep.db.models import ConversationReadRow as ConversationRead
from threadkeep.db.models import ConversationRow as Conversation
from threadkeep.db.models import ConversationStateRow as ConversationState
from threadkeep.db.models import ItemBlobRow as ItemBlob
from threadkeep.db.models import ItemFeedbackRow as ItemFeedback
from threadkeep.db.models import ItemLabelRow as ItemLabel
from threadkeep.db.models import ItemRow as Item
from threadkeep.db.models import ResponseBodyRow as ResponseBody
from threadkeep.db.models import ResponseRow as Response
from threadkeep.db.models import SearchDocumentRow as SearchDocument
from threadkeep.db.models import StreamPartRow as StreamPart
from threadkeep.db.models import TenantRow as Tenant
from threadkeep.db.models import ToolDefinitionRow as ToolDefinition
from threadkeep.db.models import ToolSetRow as ToolSet
from threadkeep.db.models import UploadRow as Upload
from threadkeep.db.models import UsageDailyModelRow as UsageDailyModel
from threadkeep.db.models import UsageDailyRow as UsageDaily
from threadkeep.db.models import UsageDailySketchRow as UsageDailySketch
from threadkeep.db.models import UsageDayRow as UsageDay
from threadkeep.db.models import UsageRecordRow as UsageRecord
from threadkeep.db.types import PublicId

# fmt: off
__all__ = [
    "METADATA", "ApiKey", "Append", "Approval", "Blob", "Branch", "Change", "Config", "ContextCache", "Conversation",
    "ConversationLabel", "ConversationRead", "ConversationState", "Item", "ItemBlob", "ItemFeedback", "ItemLabel",
    "PublicId", "Response", "ResponseBody", "SearchDocument", "StreamPart", "Tenant", "ToolDefinition", "ToolSet",
    "Upload", "UsageDaily", "UsageDailyModel", "UsageDailySketch", "UsageDay", "UsageRecord",
]
# fmt: on

_WRITES: Final = ("before_insert", "before_update", "before_delete")


def _refuse(mapper: Mapper[Base], _connection: Connection, _row: Base) -> NoReturn:
    raise InvalidRequestError(
        f"Rows of {mapper.local_table} are read-only in the ORM. "
        "Change conversations through a threadkeep.Store; store.within(session) does it in the session's transaction."
    )


for _name in _WRITES:
    event.listen(Base, _name, _refuse, propagate=True)
