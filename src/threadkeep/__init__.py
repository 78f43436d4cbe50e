"""Persistence-first store for LLM conversations: rows in SQL, requests for any provider, usage in a ledger."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from threadkeep import formats as formats
    from threadkeep import schema as schema
    from threadkeep.domain.context_caches import CachePlan, ContextCache
    from threadkeep.domain.cost import Price
    from threadkeep.domain.media import data_url
    from threadkeep.domain.response import Response
    from threadkeep.domain.session import Session
    from threadkeep.domain.statistics import LargeConversation, Statistics
    from threadkeep.domain.stored import Branch, Page, SearchResult, StoredItem, StoredResponse, SyncResult
    from threadkeep.domain.tools import ToolRegistry, default_registry, register_tool, reset_default_registry
    from threadkeep.domain.usage import Reconciled, ToolUsage, Usage, UsageRow
    from threadkeep.domain.wire import Loss, Rendered, Repair, Turns
    from threadkeep.store.async_conversation import AsyncConversation
    from threadkeep.store.async_store import AsyncStore
    from threadkeep.store.conversation import Conversation
    from threadkeep.store.store import Store

__version__ = "0.1.0"

__all__ = [
    "AsyncConversation",
    "AsyncStore",
    "Branch",
    "CachePlan",
    "CannotParse",
    "CannotRender",
    "Conflict",
    "ContextCache",
    "Conversation",
    "FormatError",
    "HeadConflict",
    "IdempotencyConflict",
    "InvalidItem",
    "InvalidOption",
    "ItemRefused",
    "LargeConversation",
    "LeaseLost",
    "Loss",
    "LossError",
    "MissingExtra",
    "NotFound",
    "Page",
    "ParsedJsonError",
    "Price",
    "ProviderError",
    "Reconciled",
    "Rendered",
    "Repair",
    "Response",
    "ResponseInProgress",
    "SchemaError",
    "SchemaMissing",
    "SchemaOutOfDate",
    "SchemaTooNew",
    "SearchResult",
    "Session",
    "Statistics",
    "Store",
    "StoredItem",
    "StoredResponse",
    "SyncResult",
    "ThreadkeepError",
    "TooLarge",
    "ToolNotFound",
    "ToolRegistry",
    "ToolUsage",
    "Turns",
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

# module -> the public names in it, which are loaded when one of them is first asked for
_NAMES: Final = {
    "domain.context_caches": ("CachePlan", "ContextCache"),
    "domain.cost": ("Price",),
    "domain.media": ("data_url",),
    "domain.response": ("Response",),
    "domain.session": ("Session",),
    "domain.statistics": ("LargeConversation", "Statistics"),
    "domain.stored": ("Branch", "Page", "SearchResult", "StoredItem", "StoredResponse", "SyncResult"),
    "domain.tools": ("ToolRegistry", "default_registry", "register_tool", "reset_default_registry"),
    "domain.usage": ("Reconciled", "ToolUsage", "Usage", "UsageRow"),
    "domain.wire": ("Loss", "Rendered", "Repair", "Turns"),
    "store.async_conversation": ("AsyncConversation",),
    "store.async_store": ("AsyncStore",),
    "store.conversation": ("Conversation",),
    "store.store": ("Store",),
}
_MODULES: Final = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name, loaded now (PEP 562): a program pays at its start only for what it uses."""
    if name in {"formats", "schema"}:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
