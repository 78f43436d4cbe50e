"""The kinds of calls that have outputs: how an output names its call, and what stands for one that is missing.

OpenAI refuses a call of these kinds without its output ("No tool output found for shell call …", "The following MCP
approval requests do not have an approval: …"), an output without its call ("No tool call found for …"), and a second
output of one call. Calls that the provider runs itself have no output, or one that comes with them.

Sources: the input item types of the openai package; OpenAI's guides "Shell", "Apply patch", "Computer use", "Local
shell", "Tool search", "MCP and connectors", "Async tool calling" and "Programmatic tool calling"; reports
openai-agents-python #1855 and #843, openai-python #3923.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject

CALL_ID: Final = "call_id"
MISSING_OUTPUT: Final = "Tool result missing"
CUT_OFF_OUTPUT: Final = "The tool call was cut off and was not run"
LEFT_BEHIND: Final = "The conversation went on without the output of this call."  # what people are shown of the former
PLACEHOLDERS: Final = frozenset({MISSING_OUTPUT, CUT_OFF_OUTPUT, LEFT_BEHIND})
MISSING_DECISION: Final = "No decision was made"
# A transparent pixel: the output of a computer call is a screenshot, and nothing else
_NO_SCREENSHOT: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR4nGNgYAAAAAMAAbitOmMAAAAASUVORK5CYII="
)


@dataclass(frozen=True, slots=True)
class CallKind:
    """A kind of call.

    Attributes:
        name: its name here.
        call: the item type of its calls.
        output: the item type of their outputs.
        text_output: the content of an output that says a text, if it can say one.
        blank_call: the content of a call of which only a text is left.
        missing: what a placeholder says.
        stand_in: the content of a placeholder, where it differs from an output with this text.
        call_key: the key of a call with the id that its output names.
        output_key: the key of an output with the id of its call.
        has_caller: whether an output repeats the `caller` of its call.
        is_hosted: whether the provider runs a call and gives its output itself.
        is_refused: whether a placeholder would be refused, so that an unanswered call is left out.
        also_answered_by: another item type that answers such calls.
    """

    name: str
    call: str
    output: str
    text_output: Callable[[str], JsonObject] | None = None
    blank_call: Callable[[str], JsonObject] | None = None
    missing: str = MISSING_OUTPUT
    stand_in: JsonObject | None = None
    call_key: str = CALL_ID
    output_key: str = CALL_ID
    has_caller: bool = False
    is_hosted: Callable[[JsonObject], bool] = lambda _: False
    is_refused: Callable[[JsonObject], bool] = lambda _: False
    also_answered_by: str | None = None

    def placeholder(self, call: JsonObject, call_id: str) -> JsonObject:
        """The output that is sent for a call without one."""
        content = self.stand_in if self.text_output is None else self.text_output(self.missing_text(call))
        return self.output_of(call, call_id, content or {})

    def missing_text(self, call: JsonObject) -> str:
        """What a placeholder says for a call."""
        return CUT_OFF_OUTPUT if is_cut_off(call) else self.missing

    def output_of(self, call: JsonObject, call_id: str | None, content: JsonObject) -> JsonObject:
        """An output of a call, with this content."""
        output = {"type": self.output, self.output_key: call_id, **content}
        if self.name == "local_shell":  # the types of the openai package demand both, the service reads `call_id`
            output["id"] = call_id
        if self.has_caller and call.get("caller") is not None:
            output["caller"] = call["caller"]
        return output


def _in_container(call: JsonObject) -> bool:
    environment = call.get("environment")
    return isinstance(environment, dict) and environment.get("type") not in (None, "local")


KINDS: Final = (
    CallKind(
        "function", "function_call", "function_call_output",
        text_output=lambda text: {"output": text}, blank_call=lambda _: {"arguments": "{}"}, has_caller=True,
    ),
    CallKind(
        "custom", "custom_tool_call", "custom_tool_call_output",
        text_output=lambda text: {"output": text}, blank_call=lambda text: {"input": text}, has_caller=True,
    ),
    CallKind(
        "shell", "shell_call", "shell_call_output",
        text_output=lambda text: {
            "output": [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}]
        },
        blank_call=lambda text: {"action": {"commands": [text]}}, has_caller=True,
        is_hosted=_in_container, is_refused=_in_container,
    ),
    CallKind(
        "apply_patch", "apply_patch_call", "apply_patch_call_output",
        text_output=lambda text: {"status": "failed", "output": text},
        blank_call=lambda text: {"operation": {"type": "delete_file", "path": text}}, has_caller=True,
    ),
    CallKind(
        "computer", "computer_call", "computer_call_output",
        stand_in={"output": {"type": "computer_screenshot", "image_url": _NO_SCREENSHOT}},
        blank_call=lambda _: {"action": {"type": "screenshot"}, "pending_safety_checks": []},
        is_refused=lambda call: bool(call.get("pending_safety_checks")),  # the application acknowledges them
    ),
    CallKind(
        "local_shell", "local_shell_call", "local_shell_call_output",
        text_output=lambda text: {"output": text},
        blank_call=lambda text: {"action": {"type": "exec", "command": [text], "env": {}}},
        also_answered_by="function_call_output",  # as Codex does
    ),
    CallKind(
        "tool_search", "tool_search_call", "tool_search_output",
        stand_in={"execution": "client", "status": "completed", "tools": []}, blank_call=lambda _: {"arguments": {}},
        is_hosted=lambda call: (
            call.get("execution") == "server" or (call.get("execution") is None and call.get(CALL_ID) is None)
        ),
    ),
    CallKind(
        "mcp_approval", "mcp_approval_request", "mcp_approval_response",
        text_output=lambda text: {"approve": False, "reason": text}, missing=MISSING_DECISION,
        blank_call=lambda text: {"arguments": "{}", "server_label": text},
        call_key="id", output_key="approval_request_id",
    ),
    # OpenAI runs the program; what it calls are calls of their own, with a `caller`
    CallKind("program", "program", "program_output", is_hosted=lambda _: True),
)  # fmt: skip
# item type of calls, and of outputs -> their kind
BY_CALL: Final = {kind.call: kind for kind in KINDS}
BY_OUTPUT: Final = {kind.output: kind for kind in KINDS}
# item type -> the keys with the id that calls and outputs share, where it is not `call_id` alone
_REFERENCES: Final = {
    "mcp_approval_request": ("id",),
    "mcp_approval_response": ("approval_request_id",),
    "local_shell_call_output": (CALL_ID, "id"),
}
_CALL_IDS: Final = (CALL_ID,)
_WRITTEN: Final = ("function_call", "custom_tool_call")  # types of calls of the application's own tools


def reference_of(item: JsonObject) -> Any:
    """The id that a call and its output share, as either of them has it."""
    for key in _REFERENCES.get(item["type"], _CALL_IDS):
        if item.get(key) is not None:
            return item[key]
    return None


def is_answered_by_client(call: JsonObject) -> bool:
    """Whether the application gives the output of a call."""
    kind = BY_CALL.get(call["type"])
    return kind is None or not kind.is_hosted(call)


def is_cut_off(call: JsonObject) -> bool:
    """Whether the end of a call is missing."""
    status = call.get("status")
    return status == "incomplete" or (status == "in_progress" and not may_be_in_progress(call["type"]))


def may_be_in_progress(kind: str) -> bool:
    """Whether calls of an item type can be whole and in progress: built-in tools that wait for an output."""
    return kind in BY_CALL and kind not in _WRITTEN


def is_asynchronous(call: JsonObject) -> bool:
    """Whether the model goes on without the output of a call, which may come at any later time."""
    return call.get("async") is True and call["type"] in _WRITTEN


def shown_output(output: JsonObject) -> list[JsonObject]:
    """What an output says, as parts of a message."""
    content = _SHOWN.get(output["type"], _content)(output)
    return content if isinstance(content, list) else [{"type": "input_text", "text": content or ""}]


def _content(output: JsonObject) -> Any:
    return output.get("output")


def _screenshot(output: JsonObject) -> Any:
    screenshot = output.get("output")
    if not isinstance(screenshot, dict):
        return screenshot
    return [{"type": "input_image", **{key: value for key, value in screenshot.items() if key != "type"}}]


def _streams(output: JsonObject) -> Any:
    """What the commands of a shell wrote."""
    chunks = output.get("output")
    if not isinstance(chunks, list):
        return chunks
    written = [chunk.get(key) for chunk in chunks if isinstance(chunk, dict) for key in ("stdout", "stderr")]
    return "\n".join(text for text in written if isinstance(text, str) and text)


def _decision(output: JsonObject) -> str:
    decision, reason = "approved" if output.get("approve") else "denied", output.get("reason")
    return f"{decision}: {reason}" if reason else decision


def _tool_names(output: JsonObject) -> str:
    tools = output.get("tools")
    names = [tool.get("name") for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return ", ".join(str(name) for name in names if name)


# item type -> what its output says, where it has another form than text or parts
_SHOWN: Final[dict[str, Callable[[JsonObject], Any]]] = {
    "computer_call_output": _screenshot,
    "shell_call_output": _streams,
    "mcp_approval_response": _decision,
    "tool_search_output": _tool_names,
    "apply_patch_call_output": lambda output: output.get("output") or output.get("status"),
}
