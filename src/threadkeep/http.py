"""A server for OpenAI's clients: Conversations and stored Responses over your own database; a recorder for any client.

Needs the extra ``http``. `app` and `recorder_app` return ASGI applications; the commands ``threadkeep serve`` and
``threadkeep record`` run them.
"""

from threadkeep.errors import MissingExtra

try:
    import fastapi  # noqa: F401 - whether it is there
except ImportError as error:
    raise MissingExtra("http", "The server") from error

from threadkeep.server.keys import KeyAuthentication
from threadkeep.server.limits import Limits
from threadkeep.server.openai.application import app
from threadkeep.server.owners import Owner
from threadkeep.server.provider_answers import UpstreamError
from threadkeep.server.recorder.application import recorder_app
from threadkeep.server.recorder.targets import RecordedUpstream
from threadkeep.server.rest.application import rest_app
from threadkeep.server.rest.tool_runs import ToolContext, tool_context
from threadkeep.server.site import site
from threadkeep.server.upstreams import Upstream, http_upstream, named_upstream

__all__ = [
    "KeyAuthentication", "Limits", "Owner", "RecordedUpstream", "ToolContext", "Upstream", "UpstreamError", "app",
    "http_upstream", "named_upstream", "recorder_app", "rest_app", "site", "tool_context",
]  # fmt: skip
