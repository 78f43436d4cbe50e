"""A server for OpenAI's clients: Conversations and stored Responses over your own database; a recorder for any client.

Needs the extra ``http``. `app` and `recorder_app` return ASGI applications; the commands ``threadkeep serve`` and
``threadkeep record`` run them.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from threadkeep.errors import MissingExtra

if find_spec("fastapi") is None:
    raise MissingExtra("http", "The server")

from threadkeep.server.keys import KeyAuthentication
from threadkeep.server.limits import Limits
from threadkeep.server.openai.application import app
from threadkeep.server.owners import Owner
from threadkeep.server.provider_answers import UpstreamError
from threadkeep.server.recorder.application import recorder_app
from threadkeep.server.recorder.targets import RecordedUpstream
from threadkeep.server.site import site
from threadkeep.server.upstreams import Upstream, http_upstream, named_upstream

if TYPE_CHECKING:
    from threadkeep.server.rest.application import rest_app
    from threadkeep.server.rest.tool_runs import ToolContext, tool_context

__all__ = [
    "KeyAuthentication", "Limits", "Owner", "RecordedUpstream", "ToolContext", "Upstream", "UpstreamError", "app",
    "http_upstream", "named_upstream", "recorder_app", "rest_app", "site", "tool_context",
]  # fmt: skip

_OF_REST: Final = {"rest_app": "application", "ToolContext": "tool_runs", "tool_context": "tool_runs"}


def __getattr__(name: str) -> Any:
    """A name of the REST API (PEP 562), which is loaded with it: FastAPI and its models take 12 MiB."""
    if name not in _OF_REST:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"threadkeep.server.rest.{_OF_REST[name]}"), name)
