"""One spelling for Converse requests that say the same: what a round trip may change, and nothing else.

* `modelId` stands in the path or in the body; `system: []` and `inferenceConfig: {}` are absent.
* A key of the API that is null is absent.
* Neighbouring messages of one role are joined or not.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def leveled(request: Json) -> Json:
    """The request in one spelling."""
    found = {key: value for key, value in request.items() if value is not None and key != "modelId"}
    for key, empty in (("system", []), ("inferenceConfig", {})):
        if found.get(key) == empty:
            del found[key]
    found["messages"] = joined(found["messages"])
    return found


def joined(messages: list[Json]) -> list[Json]:
    """Messages, neighbours of one role as one."""
    found: list[Json] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"]:
            found[-1] = {**found[-1], "content": [*found[-1]["content"], *message["content"]]}
        else:
            found.append(message)
    return found
