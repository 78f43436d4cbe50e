"""Tables of the items and parts of Open Responses, which is how items are stored.

Source: the Open Responses specification and OpenAI's API reference, "Responses".
"""

from __future__ import annotations

from typing import Final

NAME: Final = "open_responses"  # the format whose items these are
LONGEST_CALL_ID: Final = 64

ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
ITEM_STATUSES: Final = frozenset({"in_progress", "completed", "incomplete"})
# item type -> the statuses it can have, where these are others
STATUSES: Final = {
    "file_search_call": ITEM_STATUSES | {"searching", "failed"},
    "web_search_call": ITEM_STATUSES | {"searching", "failed"},
    "image_generation_call": frozenset({"in_progress", "completed", "generating", "failed"}),
    "code_interpreter_call": ITEM_STATUSES | {"interpreting", "failed"},
    "computer_call_output": ITEM_STATUSES | {"failed"},
    "mcp_call": ITEM_STATUSES | {"calling", "failed"},
    "program_output": frozenset({"completed", "incomplete"}),
    "apply_patch_call": frozenset({"in_progress", "completed"}),
    "apply_patch_call_output": frozenset({"completed", "failed"}),
}
# the statuses that say that the end of an item is missing; of those that a type can have, the first one counts
_CUT: Final = ("incomplete", "failed", "in_progress")
PHASES: Final = frozenset({"commentary", "final_answer"})
DETAILS: Final = frozenset({"low", "high", "auto", "original"})

# item type -> its keys
ITEM_KEYS: Final = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "function_call": frozenset(
        {"type", "call_id", "name", "arguments", "id", "status", "namespace", "caller", "async"}
    ),
    "function_call_output": frozenset({"type", "call_id", "output", "id", "status", "name", "namespace", "caller"}),
    "reasoning": frozenset({"type", "id", "status", "encrypted_content", "summary", "content"}),
    "compaction": frozenset({"type", "id", "encrypted_content", "created_by"}),
    "item_reference": frozenset({"type", "id"}),
}  # fmt: skip
# item type -> its keys in an answer
ANSWER_KEYS: Final = {kind: keys | {"created_by"} for kind, keys in ITEM_KEYS.items()}
# keys that stand in answers alone, or that OpenAI's Agents SDK has for itself: the service's input has none of them
OUTPUT_KEYS: Final = frozenset({"created_by"})
OUTPUT_PREFIX: Final = "_agents_tool_"
# item type -> more of these
OUTPUT_KEYS_OF: Final = {"custom_tool_call_output": frozenset({"status"})}
# item type -> its key with a list of objects that have such keys, too
OUTPUT_LISTS: Final = {"shell_call_output": "output"}
# item type -> key -> the values that the input has, and what is sent for others
INPUT_VALUES: Final = {
    "computer_call_output": {"status": (ITEM_STATUSES, "incomplete")},
    "additional_tools": {"role": (frozenset({"developer"}), "developer")},
}
# part type -> its keys
PART_KEYS: Final = {
    "input_text": frozenset({"type", "text", "prompt_cache_breakpoint"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"}),
    "input_file": frozenset(
        {"type", "file_data", "file_url", "file_id", "filename", "detail", "prompt_cache_breakpoint"}
    ),
    "input_video": frozenset({"type", "video_url"}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
    "text": frozenset({"type", "text"}),
    "reasoning_text": frozenset({"type", "text"}),
    "summary_text": frozenset({"type", "text"}),
}  # fmt: skip
# item type -> the prefix that the service requires on its ids
PREFIXES: Final = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
# kind of annotation -> its keys, all of which it needs
ANNOTATIONS: Final = {
    "url_citation": frozenset({"type", "url", "title", "start_index", "end_index"}),
    "file_citation": frozenset({"type", "file_id", "filename", "index"}),
    "container_file_citation": frozenset({"type", "container_id", "file_id", "filename", "start_index", "end_index"}),
    "file_path": frozenset({"type", "file_id", "index"}),
}


def cut_status(kind: str) -> str:
    """The status of an item of this type of which the end is missing.

    >>> cut_status("message"), cut_status("image_generation_call"), cut_status("apply_patch_call")
    ('incomplete', 'failed', 'in_progress')
    """
    known = STATUSES.get(kind, ITEM_STATUSES)
    return next(status for status in _CUT if status in known)
