"""Persistence-first store for LLM conversations: rows in SQL, requests for any provider, usage in a ledger."""

# The public names stand close together here, as in `__all__`
# fmt: off
# isort: off
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from threadkeep.errors import (
    AmbiguousId, CannotParse, CannotRender, Conflict, CursorExpired, DamagedRow, DatabaseUnavailable, FormatError,
    HeadConflict, IdempotencyConflict, InvalidItem, InvalidOption, InvalidToolArguments, ItemRefused, LeaseLost,
    LossError, MissingExtra, NotFound, ParsedJsonError, PoolExhausted, ProviderError, ResponseInProgress, SchemaError,
    SchemaMissing, SchemaOutOfDate, SchemaTooNew, SchemaUnknown, StateConflict, ThreadkeepError, TooLarge,
    ToolNotFound, UnitOfWorkEnded, UnitOfWorkRolledBack, UnknownFormat,
)
from threadkeep.formats import FormatName  # which makes the formats known by name, and loads none

if TYPE_CHECKING:
    from threadkeep import blobs as blobs
    from threadkeep import formats as formats
    from threadkeep import models as models
    from threadkeep import schema as schema
    from threadkeep.domain.api_keys import ApiKey, ApiScope, NewApiKey
    from threadkeep.domain.content import (
        Content, InputFile, InputImage, InputText, InputVideo, OutputText, Part, ProviderPart, ReasoningText, Refusal,
        SummaryText, Text, UnknownPart,
    )
    from threadkeep.domain.context_caches import CachePlan, ContextCache
    from threadkeep.domain.items import (
        Compaction, FunctionCall, FunctionCallOutput, Item, ItemInput, ItemReference, Message, ProviderItem, Reasoning,
        UnknownItem,
    )
    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.domain.media import Media, UploadedMedia, data_url
    from threadkeep.domain.options import ImportOptions, NewOptions, SessionOptions, UpdateOptions
    from threadkeep.domain.rendering import Loss, Rendered, Repair, Turns, ViewOptions
    from threadkeep.domain.reports import (
        Backlog, Due, ErasureReport, LargeConversation, RecomputationReport, ReconciliationReport, RetentionReport,
        Statistics, ToolUsage, UsageFilters, UsageKey, UsageRow, UsageSum,
    )
    from threadkeep.domain.response import Response
    from threadkeep.domain.running import Approval, NextStep, PendingCall, Siblings, StoredTurn, Variant
    from threadkeep.domain.session import Session
    from threadkeep.domain.stored import (
        Branch, Change, ChangePage, ConversationMatch, ConversationSummary, Feedback, Page, SearchResult, Seen, State,
        StateWrite, StoredItem, StoredResponse, SyncResult,
    )
    from threadkeep.domain.tools import (
        BuiltinTool, FunctionTool, Tool, ToolRegistry, default_registry, register_tool, reset_default_registry,
    )
    from threadkeep.domain.usage import NormalizedUsage, Price, Usage
    from threadkeep.store.aio import AsyncApiKeys, AsyncConversation, AsyncRecorder, AsyncStore, AsyncUnitOfWork
    from threadkeep.store.writing.api_keys import ApiKeys
    from threadkeep.store.removing.batches import Progress
    from threadkeep.store.changes.watching import AsyncChangeWatcher, ChangeWatcher
    from threadkeep.store.checking.findings import CheckReport, Finding
    from threadkeep.store.conversation import Conversation
    from threadkeep.store.loops import run_tools, run_tools_async
    from threadkeep.store.writing.conversations import ConversationInfo
    from threadkeep.store.writing.importing import NewSession
    from threadkeep.store.moving.copying import CopyReport, Difference
    from threadkeep.store.moving.usage_files import UsageExportReport
    from threadkeep.store.moving.restoring import ImportReport
    from threadkeep.store.work.positions import AppendOptions, OnConflict
    from threadkeep.store.store import Store, UnitOfWork
    from threadkeep.store.streaming.recorder import Recorder

__version__ = "0.1.0"

__all__ = [
    "AmbiguousId", "ApiKey", "ApiKeys", "ApiScope", "AppendOptions", "Approval", "AsyncApiKeys", "AsyncChangeWatcher",
    "AsyncConversation", "AsyncRecorder", "AsyncStore", "AsyncUnitOfWork", "Backlog", "Branch", "BuiltinTool",
    "CachePlan", "CannotParse", "CannotRender", "Change", "ChangePage", "ChangeWatcher", "CheckReport", "Compaction",
    "Conflict", "Content", "ContextCache", "Conversation", "ConversationInfo", "ConversationMatch",
    "ConversationSummary", "CopyReport", "CursorExpired", "DamagedRow", "DatabaseUnavailable", "Difference", "Due",
    "ErasureReport", "Feedback", "Finding", "FormatError", "FormatName", "FunctionCall", "FunctionCallOutput",
    "FunctionTool", "HeadConflict", "IdempotencyConflict", "ImportOptions", "ImportReport", "InputFile", "InputImage",
    "InputText", "InputVideo", "InvalidItem", "InvalidOption", "InvalidToolArguments", "Item", "ItemInput",
    "ItemReference", "ItemRefused", "JsonObject", "LargeConversation", "LeaseLost", "Loss", "LossError", "Media",
    "Message", "MissingExtra", "NewApiKey", "NewOptions", "NewSession", "NextStep", "NormalizedUsage", "NotFound",
    "OnConflict", "OutputText", "Page", "ParsedJsonError", "Part", "PendingCall", "PoolExhausted", "Price", "Progress",
    "ProviderError", "ProviderItem", "ProviderPart", "Reasoning", "ReasoningText", "RecomputationReport",
    "ReconciliationReport", "Recorder", "Refusal", "Rendered", "Repair", "Response", "ResponseInProgress",
    "RetentionReport", "SchemaError", "SchemaMissing", "SchemaOutOfDate", "SchemaTooNew", "SchemaUnknown",
    "SearchResult", "Seen", "Session", "SessionOptions", "Siblings", "State", "StateConflict", "StateWrite",
    "Statistics", "Store", "StoredItem", "StoredResponse", "StoredTurn", "SummaryText", "SyncResult", "Text",
    "ThreadkeepError", "TooLarge", "Tool", "ToolNotFound", "ToolRegistry", "ToolUsage", "Turns", "UnitOfWork",
    "UnitOfWorkEnded", "UnitOfWorkRolledBack", "UnknownFormat", "UnknownItem", "UnknownPart", "UpdateOptions",
    "UploadedMedia", "Usage", "UsageExportReport", "UsageFilters", "UsageKey", "UsageRow", "UsageSum", "Variant",
    "ViewOptions", "__version__", "blobs", "data_url", "default_registry", "formats", "models", "register_tool",
    "reset_default_registry", "run_tools", "run_tools_async", "schema",
]
# fmt: on
# isort: on

# module -> the public names in it, which are loaded when one of them is first asked for
_NAMES: Final = {
    "domain.api_keys": "ApiKey ApiScope NewApiKey",
    "domain.content": (
        "Content InputFile InputImage InputText InputVideo OutputText Part ProviderPart ReasoningText Refusal "
        "SummaryText Text UnknownPart"
    ),
    "domain.context_caches": "CachePlan ContextCache",
    "domain.items": (
        "Compaction FunctionCall FunctionCallOutput Item ItemInput ItemReference Message ProviderItem Reasoning "
        "UnknownItem"
    ),
    "domain.jsontext": "JsonObject",
    "domain.media": "Media UploadedMedia data_url",
    "domain.options": "ImportOptions NewOptions SessionOptions UpdateOptions",
    "domain.reports": (
        "Backlog Due ErasureReport LargeConversation RecomputationReport ReconciliationReport RetentionReport "
        "Statistics ToolUsage UsageFilters UsageKey UsageRow UsageSum"
    ),
    "domain.rendering": "Loss Rendered Repair Turns ViewOptions",
    "domain.response": "Response",
    "domain.running": "Approval NextStep PendingCall Siblings StoredTurn Variant",
    "domain.session": "Session",
    "domain.stored": (
        "Branch Change ChangePage ConversationMatch ConversationSummary Feedback Page SearchResult Seen State "
        "StateWrite StoredItem StoredResponse SyncResult"
    ),
    "domain.tools": "BuiltinTool FunctionTool Tool ToolRegistry default_registry register_tool reset_default_registry",
    "domain.usage": "NormalizedUsage Price Usage",
    "store.aio": "AsyncApiKeys AsyncConversation AsyncRecorder AsyncStore AsyncUnitOfWork",
    "store.writing.api_keys": "ApiKeys",
    "store.removing.batches": "Progress",
    "store.changes.watching": "AsyncChangeWatcher ChangeWatcher",
    "store.checking.findings": "CheckReport Finding",
    "store.conversation": "Conversation",
    "store.loops": "run_tools run_tools_async",
    "store.writing.conversations": "ConversationInfo",
    "store.writing.importing": "NewSession",
    "store.moving.copying": "CopyReport Difference",
    "store.moving.usage_files": "UsageExportReport",
    "store.moving.restoring": "ImportReport",
    "store.work.positions": "AppendOptions OnConflict",
    "store.store": "Store UnitOfWork",
    "store.streaming.recorder": "Recorder",
}
_MODULES: Final = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, loaded now (PEP 562): a program pays at its start only for what it uses."""
    if name in {"blobs", "formats", "models", "schema"}:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
