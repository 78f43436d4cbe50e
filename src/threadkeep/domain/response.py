"""Responses of providers, in the terms of Open Responses, and their makers: who gave an answer.

A maker decides where an item may go back. What only its maker can read, such as signatures, encrypted content and ids
of what a provider keeps, is sent to that maker alone. A format is no maker: many providers speak the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, Self, get_args
from urllib.parse import quote, unquote

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation

from threadkeep.domain import content, formats, options
from threadkeep.domain.items import FunctionCall, Item, Message, item_from_object
from threadkeep.domain.jsontext import JsonObject, body_object, json_copy, loads, mismatch
from threadkeep.domain.stored import StoredAt
from threadkeep.domain.usage import NormalizedUsage, Usage
from threadkeep.errors import InvalidItem, InvalidOption, ParsedJsonError, shown

_FENCE: Final = re.compile(r"\s*```(?:json)?[^\S\n]*\n?(.*?)\s*```\s*", re.DOTALL | re.IGNORECASE)

_ITEM_CLASSES: Final = frozenset(get_args(Item))


def _or_none(check: Callable[[str, Any], Any]) -> BeforeValidator:
    """Return a validator that applies an option check and replaces rejected values with None."""

    def validate(value: Any) -> Any:
        try:
            return None if value is None else check("", value)
        except InvalidOption:
            return None

    return BeforeValidator(validate)


def _items(value: Any) -> Any:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise mismatch(InvalidItem, "a list of items", value, "output")
    return [
        element if element.__class__ in _ITEM_CLASSES else _item(element, index) for index, element in enumerate(value)
    ]


def _item(value: object, index: int) -> Item:
    if isinstance(value, dict | Mapping):  # dicts are recognized fastest
        return item_from_object(value)
    if isinstance(value, Item):
        return value
    raise mismatch(InvalidItem, "an item", value, f"output[{index}]", "Pass an item or a dict.")


def _usage(value: Any) -> Any:
    is_known = value is None or value.__class__ is Usage  # nearly always
    return value if is_known or not isinstance(value, Mapping) else Usage.from_dict(value)


# What providers repeat is parsed leniently: a value of another type is None here (the raw body is stored as well). A
# value of the right type is accepted without a call from Pydantic to Python.
_FIRST: Final = Field(union_mode="left_to_right")
Words = Annotated[pydantic.StrictStr | Annotated[str | None, _or_none(options.identifier)] | None, _FIRST]
Number = Annotated[pydantic.StrictFloat | Annotated[float | None, _or_none(options.number)] | None, _FIRST]
Integer = Annotated[pydantic.StrictInt | Annotated[int | None, _or_none(options.integer)] | None, _FIRST]
Boolean = Annotated[pydantic.StrictBool | Annotated[None, BeforeValidator(lambda _: None)] | None, _FIRST]


class Response(BaseModel):
    """A provider's response.

    Attributes:
        status: completed, incomplete, failed, in_progress or cancelled; None if unknown.
        finish_reason: why the model stopped, in the provider's own words.
        output: the items.
        usage: the token counts.
        provider_data: everything else in the body.
        format: the wire format it was parsed from.
        replayed: whether it was already stored under the same idempotency key.
        stored: where it is stored, as (branch, number); None if it is not.

    The other fields are request settings that Open Responses repeats in the response.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, arbitrary_types_allowed=True)

    id: Words = None
    object: Words = None
    status: Words = None
    finish_reason: Words = None
    model: Words = None
    created_at: Integer = None
    completed_at: Integer = None
    incomplete_details: Any = None
    error: Any = None
    previous_response_id: Words = None
    instructions: Any = None
    temperature: Number = None
    top_p: Number = None
    presence_penalty: Number = None
    frequency_penalty: Number = None
    top_logprobs: Integer = None
    max_output_tokens: Integer = None
    max_tool_calls: Integer = None
    parallel_tool_calls: Boolean = None
    store: Boolean = None
    background: Boolean = None
    truncation: Words = None
    service_tier: Words = None
    safety_identifier: Words = None
    prompt_cache_key: Words = None
    prompt_cache_retention: Words = None
    tools: Any = None
    tool_choice: Any = None
    reasoning: Any = None
    metadata: Any = None
    text_config: Any = Field(default=None, alias="text")
    output: Annotated[list[SkipValidation[Item]], BeforeValidator(_items)] = Field(default_factory=list)
    usage: Annotated[SkipValidation[Usage] | None, BeforeValidator(_usage)] = None
    provider_data: Annotated[JsonObject | None, BeforeValidator(lambda value: value or None)] = Field(
        default=None, alias="extra"
    )
    format: Words = None
    replayed: bool = False
    stored: StoredAt | None = None

    def __init__(self, /, **data: Any) -> None:
        try:
            self.__pydantic_validator__.validate_python(data, self_instance=self)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            name = ".".join(str(step) for step in first["loc"])
            message = f"cannot be {shown(first['input'])} in a response: {first['msg']}."
            raise InvalidOption(message, argument=name) from error

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return content.set_values(super().__repr_args__())

    @classmethod
    def parse(cls, body: Any, format: formats.FormatName, headers: Mapping[str, str] | None = None) -> Response:
        """Parse a provider's body (a dict, JSON text, or an SDK object).

        Raises:
            UnknownFormat: there is no format with that name.
            CannotParse: the body is not a response; ProviderError if it is an error from the provider.
        """
        return formats.get_format(format).parse_response(body_object(body), headers)

    @classmethod
    def from_text(cls, text: str, status: str | None = "completed", **fields: Any) -> Self:
        """Return a response that consists of one assistant message with this text.

        Raises:
            InvalidOption: there is no field with that name.
        """
        return cls(status=status, output=[Message(role="assistant", content=text)], **fields)

    @property
    def is_final(self) -> bool:
        """Whether the status is completed, failed, incomplete or cancelled."""
        return self.status in ("completed", "failed", "incomplete", "cancelled")

    @property
    def completed(self) -> bool:
        """Whether the status is completed."""
        return self.status == "completed"

    @property
    def failed(self) -> bool:
        """Whether the status is failed."""
        return self.status == "failed"

    @property
    def incomplete(self) -> bool:
        """Whether the status is incomplete."""
        return self.status == "incomplete"

    @property
    def messages(self) -> list[Message]:
        """The messages in the output."""
        return [item for item in self.output if isinstance(item, Message)]

    @property
    def tool_calls(self) -> list[FunctionCall]:
        """The function calls in the output."""
        return [item for item in self.output if isinstance(item, FunctionCall)]

    @property
    def has_tool_calls(self) -> bool:
        """Whether the model called functions."""
        return any(isinstance(item, FunctionCall) for item in self.output)

    @property
    def text(self) -> str | None:
        """The text of the message marked as the final answer, or else of the first message with text; else None."""
        final = [message for message in self.messages if message.phase == "final_answer"]
        texts = (output_text(message) for message in final or self.messages)
        return next((text for text in texts if text is not None), None)

    @property
    def output_text(self) -> str | None:
        """The text of all messages, joined; None if there is none."""
        texts = [text for message in self.messages if (text := output_text(message)) is not None]
        return "".join(texts) if texts else None

    def parsed_json(self, *, strict: bool = False) -> Any:
        """Return the text parsed as JSON, ignoring a surrounding code fence; None if it is not JSON.

        Raises:
            ParsedJsonError: with `strict`, if there is no text or it is not JSON.
        """
        text = self.text
        fenced = _FENCE.fullmatch(text or "")
        try:
            return loads(fenced[1] if fenced else text or "")
        except ValueError as error:
            if strict:
                raise ParsedJsonError(text, str(error)) from error
            return None

    def to_dict(self) -> JsonObject:
        """Return the response as a JSON object that `from_dict` can read; None and empty values are omitted."""
        result: JsonObject = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is None or name in ("output", "usage", "replayed", "stored"):
                continue
            result[field.alias or name] = json_copy(value, name)
        if self.output:
            result["output"] = [item.to_dict() for item in self.output]
        if self.usage is not None:
            result["usage"] = self.usage.to_dict()
            if Usage.from_dict(result["usage"]).normalized != self.usage.normalized:
                result["normalized_usage"] = self.usage.normalized.to_dict()
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the response written by `to_dict`.

        Raises:
            InvalidOption: there is an unknown key.
            InvalidItem: the output is not a list of items.
        """
        fields = {name: value for name, value in data.items() if name not in ("usage", "normalized_usage")}
        usage, normalized = data.get("usage"), data.get("normalized_usage")
        if isinstance(usage, Mapping):
            figures = NormalizedUsage(**normalized) if isinstance(normalized, Mapping) else None
            fields["usage"] = Usage.from_dict(usage, normalized=figures)
        return cls(**fields)


def output_text(message: Message) -> str | None:
    """Return the `output_text` parts of a message, joined, or None if there are none."""
    texts = [part.text for part in message.content if isinstance(part, content.OutputText)]
    return "".join(texts) if texts else None


COMPATIBLE: Final = "compatible"  # the dialect that names no vendor
_LONGEST: Final = 255  # characters, as a column holds them


class Maker(NamedTuple):
    """The provider that gave an answer, as far as it is known.

    Attributes:
        provider: its name, as in the usage ledger.
        model: the model that the answer names.
        account: the account at the provider.
        asked: the model that the request named, where that is another one: an alias, or the name of a deployment.
    """

    provider: str | None = None
    model: str | None = None
    account: str | None = None
    asked: str | None = None

    def answering(self, model: str | None) -> Maker:
        """Return the maker of an answer that names this model, where this is of whom it was asked."""
        is_other = model is not None and model != self.asked
        return self._replace(model=model or self.asked, asked=self.asked if is_other else None)

    @property
    def text(self) -> str | None:
        """The maker as one word, which `maker_from` reads, with a slash in it; None where nothing is known."""
        return _text_of(self)


@lru_cache(maxsize=1024)
def _text_of(maker: Maker) -> str | None:
    for parts in (maker, maker[:3], (maker.provider, None, maker.account), (maker.provider,), ()):
        text = "/".join(quote(part or "", safe="", errors="replace") for part in parts).rstrip("/")
        if len(text) <= _LONGEST:
            return text if "/" in text else f"{text}/" if text else None
    return None


@lru_cache(maxsize=1024)
def maker_from(text: str) -> Maker:
    """Return the maker that a word stands for; raise InvalidItem if it is none."""
    parts = [unquote(part) or None for part in text.split("/")]
    if len(parts) > len(Maker._fields):
        raise InvalidItem(f"must be PROVIDER/MODEL/ACCOUNT/MODEL, each part quoted as in URLs, not {text!r}.")
    return Maker(*parts)


def asked_of(
    settings: Mapping[str, Any],
    view: Mapping[str, Any] | None = None,
    provider: str | None = None,
    account: str | None = None,
) -> Maker:
    """Return of whom an answer is asked: as the application says, else as the request or the session options do."""
    given = view or {}
    provider = (
        provider or given.get("provider") or settings.get("provider") or _vendor_in(given) or _vendor_in(settings)
    )
    return Maker(provider, None, account or given.get("account") or None, settings.get("model"))


def _vendor_in(options: Mapping[str, Any]) -> str | None:
    dialect = options.get("dialect")
    return None if dialect == COMPATIBLE else dialect
