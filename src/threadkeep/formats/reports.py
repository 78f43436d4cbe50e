"""What a rendering could not say (losses) and what it mended (repairs): the words for it, and the notebook.

The codes are part of the public interface; `LOSSES` and `REPAIRS` say what each of them means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Loss, Repair
from threadkeep.formats.names import Names

# code -> what is missing from the payload
LOSSES: Final = {
    "annotations": "annotations of a text were left out",
    "cache_mark": "a cache mark beyond what the format takes was left out, or lasts shorter",
    "citations": "citations were turned on or off as the format wants it",
    "data_url": "a data URL is broken, or of a kind that the format does not take",
    "file_source": "a file has no source, or more than one",
    "image_source": "an image has no source, or more than one",
    "item": "an item of a type that the format has no form for was left out",
    "media": "a picture, file or video that the format does not take was left out or became a note",
    "metadata": "metadata beyond the limits of the format was left out",
    "native": "keys that came from the wire of another format were left out",
    "option": "a setting that the format does not have was left out",
    "orphan_output": "a tool output without its call was left out",
    "part": "a content part of a type that the format has no form for was left out",
    "provider_item": "a block that belongs to another format was left out",
    "reasoning": "reasoning that this provider cannot read was left out",
    "refusal": "a refusal was left out",
    "role": "a message of an unknown role was left out",
    "status": "the status of a tool output was left out",
    "tool": "a tool definition that the format does not have was left out",
    "tool_choice": "a tool choice that the format does not have was left out",
}

# code -> what was done
REPAIRS: Final = {
    "blank_text": "an empty text, or a message of blanks alone, was left out",
    "call_id": "a call id that the format does not take was replaced by a hash",
    "compaction_trigger": "a wish for compaction that is not the last item was left out",
    "document_text": "a text was put beside a document that had none",
    "duplicate_call_id": "a call id that was used before was replaced by a hash",
    "duplicate_id": "an item id that was used before was left out, or the item where it needs one",
    "empty_arguments": "empty call arguments became {}",
    "file_as_image": "a picture given as a file was sent as a picture",
    "file_name": "a file without a name got one",
    "invalid_text": "characters that are no Unicode (lone surrogates) became U+FFFD",
    "item_id": "an item id that the format does not take was left out",
    "late_output": "a tool output that came after its placeholder was sent became user text",
    "leading_assistant": "a user turn was put before a leading assistant turn",
    "malformed_arguments": "call arguments that are no JSON became {}",
    "max_output_tokens": "a token limit below the least that the format takes was raised",
    "missing_output": "an unanswered call got an output that says so",
    "moved_output": "a tool output was moved directly behind its call",
    "name": "a name that the format does not take was cleaned",
    "not_recorded": "an earlier request was not recorded, and rendered with today's options",
    "option": "a setting that makes no sense without another was left out",
    "part_type": "a text got the part type that its role takes",
    "range": "a value became the nearest that the format takes",
    "reasoning_follower": "reasoning without the item it led to was left out",
    "role": "a message of an unknown role became a user message",
    "schema": "a tool's schema was sent as that of an object",
    "thought_signature": "a call without the thought signature that the model wants got the one that stands for none",
    "tool_choice": "a tool choice without that tool was left out",
    "tool_history": "calls of the history were declared as tools, or told as text, because the format wants tools",
    "trailing_space": "white space at the end of a last assistant message was left out",
}


@dataclass(slots=True)
class Context:
    """What mappers need besides their item: where they are, the names of this request, and where to report."""

    names: Names = field(default_factory=Names)
    tools: Sequence[JsonObject] = ()
    position: int | None = None
    losses: list[Loss] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)

    def lose(self, code: str, path: str, detail: str) -> None:
        """Report something that the payload does not say."""
        self.losses.append(Loss(code, self.position, path, detail))

    def mend(self, code: str, path: str, detail: str) -> None:
        """Report something that was mended."""
        self.repairs.append(Repair(code, self.position, path, detail))

    def name(self, original: object, path: str = "name") -> str:
        """A function name as this request spells it; a cleaned one is reported."""
        found = self.names.wire(original)
        if found != original:
            rule = f"names are 1-{self.names.longest} of {self.names.ALPHABET}"
            self.mend("name", path, f"{original!r} is sent as {found!r}: {rule}.")
        return found
