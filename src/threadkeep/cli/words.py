"""What the library says to those who call it, in the words of those who type commands."""

from __future__ import annotations

import re
from typing import Final

# what begins a message about an argument -> the option that it was given with
ARGUMENTS: Final = {
    "after": "--after",
    "by": "--by",
    "idempotency_key": "--key",
    "latency_ms": "--latency-ms",
    "limit": "--limit",
    "order_by": "--order-by",
    "provider": "--provider",
    "tenant": "The tenant's name",
    "user_id": "The user's id",
}
_ARGUMENT: Final = re.compile(rf"({'|'.join(ARGUMENTS)})(?:=|(?= (?:has|is|must|names) ))")

# a call that a message advises -> the command or option that does it
ADVICE: Final = (
    (r", or call `threadkeep\.schema\.upgrade\(engine\)`", ""),
    (r"create_tenant\(.*\) makes one", "`threadkeep tenants create` makes one, `threadkeep tenants ls` lists them"),
    (r"for_tenant\(.*\) opens it", "--tenant opens it"),
    (
        r"For an id of your own use find_conversation\(external_id=\.\.\.\)",
        "For an id of your own use `threadkeep ls --external-id`",
    ),
    (r"branches\(\) lists them", "`threadkeep branches` lists them"),
    (r'pass on_conflict="append"(.*) or on_conflict="branch"', r"give --on-conflict append\1 or --on-conflict branch"),
    (r"Render with strict=False to send it anyway; the losses are", "Without --strict it is rendered; the losses are"),
    (
        r"Feed all events to get_format\(.*\)\.assembler\(\) and .*stream_response\(.*\)\.",
        "Give all events, with --stream.",
    ),
    (r"Feed events one by one\.", "There must be one event on each line."),
    (
        r"(The response body is not JSON: .* It begins with b.(?:data:|event:|\{.?\"type).*)",
        r"\1 Give --stream if these are events.",
    ),
    (r"is no session\. Give a dict\.", "is no session. Give a JSON object."),
    (r" A longer lease= leaves more time\.", ""),
    (
        r"Set it: conversation\.update\(model=\.\.\.\)",
        'Import it with one ("model" in the file, or --model), or let the application set it',
    ),
)


def in_words(text: str) -> str:
    """A message with its arguments and calls as options and commands."""
    found = _ARGUMENT.match(text)
    if found is not None:
        text = ARGUMENTS[found[1]] + (" " if found[0].endswith("=") else "") + text[found.end() :]
    for pattern, advice in ADVICE:
        text = re.sub(pattern, advice, text)
    return text
