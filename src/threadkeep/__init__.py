"""Persistence-first store for LLM conversations: rows in SQL, requests for any provider, usage in a ledger."""

from threadkeep import formats as formats
from threadkeep import schema as schema
from threadkeep.domain.media import data_url
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.domain.stored import Branch, Page, StoredItem, StoredResponse
from threadkeep.domain.tools import ToolRegistry, default_registry, register_tool, reset_default_registry
from threadkeep.domain.usage import Usage, UsageRow
from threadkeep.domain.wire import Loss, Rendered, Repair
from threadkeep.errors import (
    CannotParse,
    CannotRender,
    Conflict,
    FormatError,
    HeadConflict,
    IdempotencyConflict,
    InvalidItem,
    InvalidOption,
    ItemRefused,
    LeaseLost,
    LossError,
    MissingExtra,
    NotFound,
    ParsedJsonError,
    ProviderError,
    ResponseInProgress,
    SchemaError,
    SchemaMissing,
    SchemaOutOfDate,
    SchemaTooNew,
    ThreadkeepError,
    TooLarge,
    ToolNotFound,
    UnknownFormat,
)
from threadkeep.store.async_conversation import AsyncConversation
from threadkeep.store.async_store import AsyncStore
from threadkeep.store.conversation import Conversation
from threadkeep.store.store import Store

__version__ = "0.1.0"

__all__ = [
    "AsyncConversation",
    "AsyncStore",
    "Branch",
    "CannotParse",
    "CannotRender",
    "Conflict",
    "Conversation",
    "FormatError",
    "HeadConflict",
    "IdempotencyConflict",
    "InvalidItem",
    "InvalidOption",
    "ItemRefused",
    "LeaseLost",
    "Loss",
    "LossError",
    "MissingExtra",
    "NotFound",
    "Page",
    "ParsedJsonError",
    "ProviderError",
    "Rendered",
    "Repair",
    "Response",
    "ResponseInProgress",
    "SchemaError",
    "SchemaMissing",
    "SchemaOutOfDate",
    "SchemaTooNew",
    "Session",
    "Store",
    "StoredItem",
    "StoredResponse",
    "ThreadkeepError",
    "TooLarge",
    "ToolNotFound",
    "ToolRegistry",
    "UnknownFormat",
    "Usage",
    "UsageRow",
    "__version__",
    "data_url",
    "default_registry",
    "formats",
    "register_tool",
    "reset_default_registry",
    "schema",
]
