"""Arguments for google-genai: ``client.interactions.create(**rendered.arguments(client.interactions.create))``.

The method takes any keyword, and refuses those that its types do not have: these go into `extra_body`, which the SDK
lays over the JSON that it sends. It always takes `stream`.

Source: `client.interactions.create` of google-genai, with whose types the tests compare this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.interactions.fields import NAME
from threadkeep.formats.shared.sending import EXTRA_BODY, name_of, parameters_of, wrong_method

if TYPE_CHECKING:
    from threadkeep.domain.rendering import Rendered

# keys of requests that the types of the SDK have
KEYS: Final = frozenset(
    {
        "agent", "agent_config", "background", "cached_content", "continuation_token", "environment",
        "generation_config", "input", "labels", "model", "previous_interaction_id", "response_format",
        "response_mime_type", "response_modalities", "safety_settings", "service_tier", "store", "stream",
        "system_instruction", "tools", "webhook_config",
    }
)  # fmt: skip


def arguments(rendered: Rendered, method: Callable[..., Any], stream: bool | None) -> JsonObject:
    """The arguments with which a method of google-genai sends the request."""
    accepted = parameters_of(method)
    if accepted is not None and "input" not in accepted:
        raise wrong_method(name_of(method), "takes no input", NAME)
    payload = dict(rendered.payload) if stream is None else {**rendered.payload, "stream": stream}
    taken = KEYS if accepted is None else accepted - {EXTRA_BODY}
    others = {key: payload.pop(key) for key in list(payload) if key not in taken}
    return payload | ({EXTRA_BODY: others} if others else {})
