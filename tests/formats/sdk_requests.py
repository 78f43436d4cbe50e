"""Requests made from the SDKs' types: every option and every tool, each with its variants, beside one plain turn."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final

from tests.formats.sdk_samples import ASKED, MODELS, Element, said
from tests.formats.sdk_schema import choices, resolved, schema
from tests.formats.sdk_values import Sample
from threadkeep.formats import FormatName

Json = dict[str, Any]

# root -> its format, and the key of the turns
ROOTS: Final[dict[str, tuple[FormatName, str]]] = {
    "openai.responses.request": ("open_responses", "input"),
    "openai.chat.request": ("chat_completion", "messages"),
    "anthropic.messages.request": ("messages", "messages"),
    "anthropic.beta.request": ("messages", "messages"),
    "google.config": ("gemini", "contents"),
    "google.interactions.request": ("interactions", "input"),
    "google.interactions.agent": ("interactions", "input"),
    "bedrock.request": ("converse", "messages"),
}
# keys of the arguments of an SDK that are no part of a body
NOT_IN_BODIES: Final = {
    "anthropic.beta.request": frozenset({"betas", "user_profile_id"}),
    "google.config": frozenset({"httpOptions", "automaticFunctionCalling", "shouldReturnHttpResponse"}),
}


class Request(Element):
    """A whole request, whose options and tools vary."""

    def samples(self) -> list[Sample]:
        """The least request first; Gemini's as the SDK sends them, without those that it refuses."""
        found = [sample for sample in super().samples() if sample.value is not None]
        if self.format_name == "gemini":
            bodies = [(sample, gemini_body(sample.value)) for sample in found]
            return [Sample(sample.label, body, sample.path) for sample, body in bodies if body is not None]
        _, key = ROOTS[self.source.partition(" ")[0]]
        turn = said(self.format_name, "user", ASKED)
        return [Sample(one.label, self._whole(one.value, key, turn), one.path) for one in found]

    def _whole(self, value: Json, key: str, turn: Json) -> Json:
        if self.format_name == "converse":
            value = {name: inner for name, inner in value.items() if name != "modelId"}
        has_model = self.format_name != "converse" and "agent" not in value
        model = {"model": MODELS[self.format_name]} if has_model else {}
        return {**value, **model, key: [turn]}


@cache
def requests() -> tuple[Request, ...]:
    """The requests of each SDK."""
    return tuple(_requests())


def _requests() -> Iterator[Request]:
    for source, (format_name, key) in ROOTS.items():
        root = schema(source)
        for kind in choices(resolved(root, root))[-1:]:  # a plain request and a streamed one differ in `stream` alone
            whole = resolved(kind, root)
            left_out = NOT_IN_BODIES.get(source, frozenset()) | {key}
            fields = {name: field for name, field in whole["properties"].items() if name not in left_out}
            required = [name for name in whole.get("required", ()) if name in fields]
            options = {"title": "Request", "type": "object", "properties": fields, "required": required}
            yield Request(f"{source} options", "Request", format_name, options, root, hold=_no_turns)


def _no_turns(value: Json) -> tuple[list[Any], list[Any], list[Any]]:
    return [], [value], []


@cache
def _google(name: str) -> Any:
    """A module of google-genai, which takes long to import."""
    return import_module(f"google.genai{name}")


@cache
def _clients() -> list[tuple[Any, Any]]:
    client, models = _google("").Client, _google(".models")
    anonymous = import_module("google.auth.credentials").AnonymousCredentials()
    vertex = client(vertexai=True, project="p", location="l", credentials=anonymous)
    return [
        (client(api_key="none"), models._GenerateContentParameters_to_mldev),
        (vertex, models._GenerateContentParameters_to_vertex),
    ]


def gemini_body(config: Json) -> Json | None:
    """The body that google-genai sends for a config, to the first of its two services that takes it."""
    types, common = _google(".types"), _google("._common")
    contents = [types.Content(role="user", parts=[types.Part(text=ASKED)])]
    for client, convert in _clients():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given = types.GenerateContentConfig.model_validate(config)
                arguments = types._GenerateContentParameters(model="m", contents=contents, config=given)
                body = common.convert_to_dict(convert(client._api_client, arguments))
        except ValueError:
            continue
        sent = {key: value for key, value in body.items() if key not in ("_url", "_query", "config")}
        found: Json = json.loads(json.dumps(common.encode_unserializable_types(sent)))
        return {key: value for key, value in found.items() if (key, value) != ("generationConfig", {})}
    return None
