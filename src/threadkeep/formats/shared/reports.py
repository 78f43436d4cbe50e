"""What a rendering left out (losses) and what it repaired: the codes for it, and where mappers report it.

The codes are part of the public interface; `LOSSES` and `REPAIRS` say what each of them means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import Loss, Repair
from threadkeep.errors import CannotRender
from threadkeep.formats.shared.names import OPENAI_NAMES, NameRule, Names

if TYPE_CHECKING:
    from threadkeep.formats.canonical.entries import Entry

# code -> what is missing from the payload
LOSSES: Final = {
    "annotations": "annotations of a text were left out",
    "cache_mark": "a cache mark beyond what the format takes was left out, or lasts shorter",
    "citations": "citations were turned on or off as the format requires",
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
    "status": "the status of a tool output was left out",
    "tool": "a tool definition that the format does not have was left out",
    "tool_choice": "a tool choice that the format does not have was left out",
}

# code -> what was done
REPAIRS: Final = {
    "blank_text": "an empty text, or a message of white space alone, was left out",
    "call_id": "a call id that the format does not take was replaced by a hash",
    "compaction_trigger": "a compaction trigger that is not the last item was left out",
    "document_text": "a text was added to a message that has a document and no text",
    "duplicate_call_id": "a call id that was used before was replaced by a hash",
    "duplicate_id": "an item id that was used before was left out, or the item where it needs one",
    "empty_arguments": "empty call arguments became {}",
    "file_as_image": "a picture given as a file was sent as a picture",
    "file_name": "a file without a name got one",
    "invalid_text": "characters that are not Unicode (lone surrogates) became U+FFFD",
    "item_id": "an item id that the format does not take was left out",
    "late_output": "a tool output that came after its placeholder was sent became user text",
    "leading_assistant": "a user turn was put before a leading assistant turn",
    "malformed_arguments": "call arguments that are not JSON became {}",
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
    "thought_signature": "a call without the thought signature that the model requires got the signature for none",
    "tool_choice": "a tool choice without that tool was left out",
    "tool_history": "calls of the history were declared as tools, or sent as text, because the format requires tools",
    "trailing_space": "white space at the end of a last assistant message was left out",
}


@dataclass(slots=True)
class Context:
    """What mappers need besides their item: where they are, the names of this request, and where to report."""

    tools: Sequence[JsonObject] = ()
    rule: NameRule = OPENAI_NAMES
    position: int | None = None
    losses: list[Loss] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    _names: Names | None = None

    def loss(self, code: str, path: str, detail: str) -> None:
        """Report something that the payload does not say."""
        self.losses.append(Loss(code, self.position, path, detail))

    def repair(self, code: str, path: str, detail: str) -> None:
        """Report something that was repaired."""
        self.repairs.append(Repair(code, self.position, path, detail))

    def name(self, original: object, path: str = "name") -> str:
        """A function name as this request spells it; a cleaned one is reported."""
        name = self.names.wire(original)
        if name != original:
            rule = f"names are 1-{self.rule.longest} of {self.rule.alphabet}"
            self.repair("name", path, f"{original!r} was sent as {name!r}: {rule}.")
        return name

    def offered_name(self, choice: JsonObject) -> str | None:
        """The function that a tool choice (flat or nested) names; None, and a repair, when no such tool is offered."""
        nested = choice.get("function")
        name = choice.get("name") or (nested.get("name") if isinstance(nested, dict) else None)
        if not isinstance(name, str) or not name:
            raise CannotRender(
                "tool_choice asks for a function without naming it.", hint="Set {'type': 'function', 'name': …}."
            )
        if name in {tool.get("name") for tool in self.tools}:
            return self.name(name, "tool_choice.name")
        self.repair("tool_choice", "tool_choice", f"The choice of {name!r} was left out: no such tool is offered.")
        return None

    def tool_choice(self, choice: Any, words: Mapping[str, Any], named: Callable[[str], Any]) -> Any:
        """A tool choice by the format's words, or of the function it names; None, and a report, where there is none."""
        if isinstance(choice, dict) and choice.get("type") == "function":
            name = self.offered_name(choice)
            return None if name is None else named(name)
        if isinstance(choice, str) and choice in words:
            return words[choice]
        kind = choice.get("type") if isinstance(choice, dict) else choice
        self.loss("tool_choice", "tool_choice", f"The format has no tool choice {kind!r}.")
        return None

    @property
    def names(self) -> Names:
        """The names of this request; those of its tools come first."""
        if self._names is None:
            self._names = Names([tool.get("name") for tool in self.tools], self.rule)
        return self._names

    def apart(self) -> Context:
        """A context for the same request that reports for itself."""
        return Context(self.tools, self.rule, _names=self.names)

    # Reports about items that are the same in all formats

    def unknown_item(self, entry: Entry) -> None:
        """Report an item that the format has no form for."""
        self.loss("item", "", f"The format has no item of type {entry.type!r}.")

    def orphan_output(self, output: Entry) -> None:
        """Report an output that was left out because no call waits for it."""
        self.loss("orphan_output", "", f"There is no unanswered call {output.call_id!r} before the output.")

    def late_output(self, output: Entry) -> None:
        """Report an output that came after its placeholder was sent."""
        self.repair("late_output", "", f"The output of {output.call_id!r} came late and was sent as the user's text.")

    def moved_output(self, output: Entry) -> None:
        """Report an output that stands elsewhere than its item."""
        self.repair("moved_output", "", f"The output of {output.call_id!r} was moved behind its call.")

    def missing_output(self, call: Entry, placeholder: str) -> None:
        """Report a call that got a placeholder, at the position of the call, where the context stays."""
        self.position = call.position
        self.repair("missing_output", "", f"The call {call.call_id!r} has no output; {placeholder!r} was sent.")
