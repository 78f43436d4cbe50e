"""A server for OpenAI's clients: Conversations and stored Responses over your own database; a recorder for any client.

Needs the extra ``http``. `app` and `recorder_app` return ASGI applications; the commands ``threadkeep serve`` and
``threadkeep record`` run them.
"""

from threadkeep.errors import MissingExtra

try:
    import starlette  # noqa: F401 - whether it is there
except ImportError as error:
    raise MissingExtra("http", "The server") from error

from threadkeep.http.openai.application import app as app
from threadkeep.http.provider_answers import UpstreamError as UpstreamError
from threadkeep.http.recorder.application import recorder_app as recorder_app
from threadkeep.http.recorder.targets import RecordedUpstream as RecordedUpstream
from threadkeep.http.rest.application import rest_app as rest_app
from threadkeep.http.upstreams import (
    Upstream as Upstream,
)
from threadkeep.http.upstreams import (
    http_upstream as http_upstream,
)
from threadkeep.http.upstreams import (
    named_upstream as named_upstream,
)
from threadkeep.web.keys import KeyAuthentication as KeyAuthentication
from threadkeep.web.limits import Limits as Limits
from threadkeep.web.owners import Owner as Owner
from threadkeep.web.site import site as site

__all__ = [
    "KeyAuthentication", "Limits", "Owner", "RecordedUpstream", "Upstream", "UpstreamError", "app", "http_upstream",
    "named_upstream", "recorder_app", "rest_app", "site",
]  # fmt: skip
