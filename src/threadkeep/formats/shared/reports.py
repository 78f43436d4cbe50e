"""What rendering omitted (losses) and repaired: the codes, and where mappers report them.

The codes are part of the public interface; `LOSSES` and `REPAIRS` explain them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain import rendering
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tool_names import OPENAI_NAMES, NameRule, Names, qualified_name
from threadkeep.errors import CannotRender

if TYPE_CHECKING:
    from threadkeep.formats.canonical.entries import ItemEntry

# code -> what is missing from the payload
LOSSES: Final = {
    "annotations": "annotations of a text were omitted",
    "cache_mark": "a cache mark was omitted, or its lifetime shortened: the format has none, or no more of them",
    "caller": "which program called a tool was omitted",
    "citations": "citations were enabled or disabled as the format requires",
    "data_url": "a data URL is invalid, or of a type that the format does not support",
    "file_source": "a file has no source, or more than one",
    "image_source": "an image has no source, or more than one",
    "item": "an item of a type that the format does not support was omitted",
    "media": "an image, file or video that the format does not support was omitted or replaced with a note",
    "metadata": "metadata beyond the format's limits was omitted",
    "native": "keys that belong to another wire format were omitted",
    "number": "a number that is NaN or infinite was omitted, or null in a list: JSON has none",
    "option": "a setting that the format does not have was omitted",
    "orphan_output": "a tool output without its call was omitted",
    "part": "a content part of a type that the format does not support was omitted",
    "provider_item": "a block that belongs to another format, or has no result, was omitted",
    "reasoning": "reasoning that this provider cannot read was omitted",
    "refusal": "a refusal was omitted",
    "refused": "something that the provider refuses was sent as it is, because nothing else can be sent for it",
    "role": "a message with an unknown role was omitted",
    "signature": "a signature, encrypted content, or an id that only the provider that gave it can read was omitted",
    "status": "the status of a tool output was omitted",
    "title": "the name of a file was omitted",
    "tool": "a tool definition that the format does not support was omitted",
    "tool_choice": "a tool choice that the format does not support was omitted",
    "unanswered_call": "a call without an output was omitted: nothing can stand for its output",
}

# code -> what was done
REPAIRS: Final = {
    "audio": "the audio of an answer, which the provider no longer has, was sent as its transcript",
    "blank_text": "an empty text, or a message consisting only of whitespace, was omitted, or replaced with a filler",
    "call_id": "a call id that the format does not accept was replaced with a hash, or stated under the key it reads",
    "compaction_trigger": "a compaction trigger that is not the last item was omitted",
    "document_text": "text was added to a message that has a document but no text",
    "duplicate_call_id": "a duplicate call id was replaced with a hash",
    "duplicate_id": "a duplicate item id was omitted, or the whole item if it needs an id",
    "empty_arguments": "empty call arguments were replaced with {}",
    "file_as_image": "an image passed as a file was sent as an image",
    "file_name": "a file without a name was given one",
    "invalid_text": "characters that are not valid Unicode (lone surrogates) were replaced with U+FFFD",
    "item_id": "an item id that the format does not accept was omitted",
    "last_turn": "a user turn was added (not for Gemini) after a final assistant turn that the model does not continue",
    "late_output": "a tool output that came after its placeholder had been sent became user text",
    "leading_assistant": "a user turn was inserted before a leading assistant turn",
    "malformed_arguments": "call arguments that are not JSON were replaced with {}",
    "max_output_tokens": "a token limit below the format's minimum was raised",
    "media_type": "the media type of an image was set to the type of its bytes",
    "missing_output": "an output that says so was added for an unanswered call",
    "moved_output": "a tool output was moved directly after its call",
    "name": "characters that the format does not accept in a name were replaced",
    "named_output": "a tool output that names its tool in place of a call became user text",
    "namespace": "the name of a tool got its namespace as a prefix, as the format has no namespaces",
    "not_recorded": "an earlier request was not recorded, so it was rendered with the current options",
    "option": "a setting that is meaningless without another one was omitted",
    "part_type": "the part type of a text was changed to the one its role requires",
    "pictures": "earlier images were replaced with a note, because the view limits their number",
    "range": "a value was changed to the nearest one that the format accepts",
    "reasoning_follower": "reasoning without the item it led to was omitted",
    "role": "a message whose role the provider does not take there became a user message",
    "schema": "a schema was sent as an object schema, or an empty one where there was none",
    "thought_signature": "a call without the thought signature that the model requires was given a placeholder",
    "tool_choice": "a choice of a tool that is not offered was omitted",
    "tool_history": "calls in the history were declared as tools, or sent as text, because the format requires tools",
    "tool_media": "images and files of tool outputs were sent in a user message after the outputs",
    "trailing_space": "whitespace at the end of a final assistant message was removed",
    "turn_order": "a filler turn was inserted between two turns that the provider does not take in a row",
}


@dataclass(slots=True)
class Context:
    """What mappers need besides their item: where they are, the names of this request, and where to report."""

    tools: Sequence[JsonObject] = ()
    rule: NameRule = OPENAI_NAMES
    takes_signatures: bool = False  # whether calls have thought signatures
    position: int | None = None
    losses: list[rendering.Loss] = field(default_factory=list)
    repairs: list[rendering.Repair] = field(default_factory=list)
    _names: Names | None = None

    def loss(self, code: str, path: str, detail: str) -> None:
        """Report something that the payload does not say."""
        self.losses.append(rendering.Loss(code, self.position, path, detail))

    def repair(self, code: str, path: str, detail: str) -> None:
        """Report something that was repaired."""
        self.repairs.append(rendering.Repair(code, self.position, path, detail))

    def name(self, original: object, path: str = "name") -> str:
        """A function name as this request spells it; a cleaned one is reported."""
        name = self.names.wire(original)
        if name != original:
            rule = f"names are 1-{self.rule.longest} of {self.rule.alphabet}"
            self.repair("name", path, f"{original!r} was sent as {name!r}: {rule}.")
        return name

    def called(self, item: JsonObject, *, is_own: bool = False) -> Any:
        """The name of the function that a call names, with its namespace; what only Open Responses says is reported.

        A call that is the format's own keeps its name.
        """
        self.caller(item)
        self.signature(item)
        name, original = item.get("name"), qualified_name(item)
        if is_own or name == original:
            return name if is_own else self.name(name)
        sent = self.names.wire(original)
        self.repair("namespace", "namespace", f"{name!r} of the namespace {item['namespace']!r} was sent as {sent!r}.")
        return sent

    def signature(self, item: JsonObject) -> None:
        """Report the thought signature of a call, where the format has none."""
        if item.get("thought_signature") is not None and not self.takes_signatures:
            self.loss("signature", "thought_signature", "The thought signature of the call was left out.")

    def caller(self, item: JsonObject) -> None:
        """Report what only the Responses API says of a call or its output: which program called, and asynchronously."""
        caller = item.get("caller")
        if isinstance(caller, dict) and caller.get("type") != "direct":
            self.loss("caller", "caller", f"The format cannot say that the caller is a {caller.get('type')}.")
        if item.get("async") is True:
            self.loss("option", "async", "The format has no asynchronous calls: its output is waited for.")

    def offered_name(self, choice: JsonObject) -> str | None:
        """The function that a tool choice (flat or nested) names; None, and a repair, when no such tool is offered."""
        nested = choice.get("function")
        name = choice.get("name") or (nested.get("name") if isinstance(nested, dict) else None)
        if not isinstance(name, str) or not name:
            raise CannotRender(
                "tool_choice asks for a function without naming it.", hint="Set {'type': 'function', 'name': …}."
            )
        if any(tool.get("name") == name for tool in self.tools):
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
        """The names of this request; names of its tools come first."""
        if self._names is None:
            self._names = Names([qualified_name(tool) for tool in self.tools], self.rule)
        return self._names

    def apart(self) -> Context:
        """A context for the same request that reports, and spells the names of calls, for itself.

        What was spelled in a try that is thrown away says nothing about the next.
        """
        return Context(self.tools, self.rule, takes_signatures=self.takes_signatures)

    # Reports about items that are the same in all formats

    def unknown_item(self, entry: ItemEntry) -> None:
        """Report an item that the format has no form for."""
        self.loss("item", "", f"The format has no item of type {entry.type!r}.")

    def orphan_output(self, output: ItemEntry) -> None:
        """Report an output that was left out because no call waits for it."""
        self.loss("orphan_output", "", f"There is no unanswered call {output.call_id!r} before the output.")

    def late_output(self, output: ItemEntry) -> None:
        """Report an output that came after its placeholder was sent."""
        self.repair("late_output", "", f"The output of {output.call_id!r} came late and was sent as the user's text.")

    def named_output(self, output: ItemEntry) -> None:
        """Report an output that names its tool and no call."""
        self.repair("named_output", "", f"The output {output.position} names no call and was sent as the user's text.")

    def moved_output(self, output: ItemEntry) -> None:
        """Report an output that stands elsewhere than its item."""
        self.repair("moved_output", "", f"The output of {output.call_id!r} was moved behind its call.")

    def missing_output(self, call: ItemEntry, placeholder: str) -> None:
        """Report a call that got a placeholder, at the position of the call."""
        detail = f"The call {call.call_id!r} has no output; {placeholder!r} was sent."
        self.repairs.append(rendering.Repair("missing_output", call.position, "", detail))
