"""Arguments for google-genai: ``client.models.generate_content(**rendered.arguments(client.models.generate_content))``.

The SDK has everything except the contents in one object, the config, which it takes apart again into the request and
its `generationConfig`. What the type of the config does not know, and contents that its type refuses, go into
`extra_body` of the config's HTTP options, which the SDK lays over the JSON that it sends, object by object.

Source: `GenerateContentConfig` and `HttpOptions` of google-genai, with which the tests compare these tables.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.fields import NAME
from threadkeep.formats.shared.rendering import no_model
from threadkeep.formats.shared.sending import EXTRA_BODY, check_stream, name_of, parameters_of, wrong_method

if TYPE_CHECKING:
    from threadkeep.domain.rendering import Rendered

_CONTENTS: Final = "contents"
_SETTINGS: Final = ("generationConfig", "generation_config")
# fields of the config that the SDK sends next to `generationConfig` …
NEXT_TO_CONFIG: Final = frozenset(
    {
        *("system_instruction", "tools", "tool_config", "safety_settings", "cached_content", "labels", "store"),
        *("service_tier", "model_armor_config", "continuation_token"),
    }
)
# … and inside
INSIDE: Final = frozenset(
    {
        *("temperature", "top_p", "top_k", "seed", "candidate_count", "max_output_tokens", "stop_sequences"),
        *("presence_penalty", "frequency_penalty", "response_logprobs", "logprobs", "response_mime_type"),
        *("response_json_schema", "response_modalities", "media_resolution", "speech_config", "thinking_config"),
        *("image_config", "routing_config", "audio_timestamp", "audio_transcription_config"),
        "enable_enhanced_civic_answers",
    }
)
# fields that are for the SDK alone, or that it does not send as they are: it adds an order of properties to a schema,
# and sends others under another name
APART: Final = frozenset(
    {
        *("http_options", "should_return_http_response", "automatic_function_calling", "automatic_continuation"),
        *("response_schema", "model_selection_config", "generation_output_config"),
    }
)
# keys of functions in tools with schemas whose keys the SDK sends in another case
_SCHEMAS: Final = frozenset({"parameters", "response"})
_FUNCTIONS: Final = ("functionDeclarations", "function_declarations")
# what stands for contents that the types refuse: the SDK asks for some, and sends the contents of extra_body
_PLACEHOLDER: Final = {"role": "user", "parts": [{"text": ""}]}


def arguments(rendered: Rendered, method: Callable[..., Any], stream: bool | None) -> JsonObject:
    """The arguments with which a method of google-genai sends the request."""
    name, accepted = name_of(method), parameters_of(method)
    if accepted is None or not accepted >= {"model", _CONTENTS, "config"}:
        raise wrong_method(name, f"is no method that takes {_CONTENTS} and a config", NAME)
    check_stream(stream, name, streams=name.endswith("_stream"))
    if rendered.model is None:
        raise no_model()
    hints = typing.get_type_hints(method)
    payload = dict(rendered.payload)
    contents, extra = payload.pop(_CONTENTS), {}
    content = next((one for one in _models(hints[_CONTENTS]) if "parts" in one.model_fields), None)
    if not _takes(content, contents):
        contents, extra[_CONTENTS] = [_PLACEHOLDER], contents
    config = _config(payload, next(_models(hints["config"]), None), extra)
    if extra:
        config["http_options"] = {EXTRA_BODY: extra}
    return {"model": rendered.model, _CONTENTS: contents} | ({"config": config} if config else {})


def _config(payload: JsonObject, kind: Any, extra: JsonObject) -> JsonObject:
    """The keys of the request that a type of config has; `extra` gets the others, where they were."""
    config: JsonObject = {}
    for key, value in payload.items():
        if key in _SETTINGS and isinstance(value, dict) and _SETTINGS[1] not in getattr(kind, "model_fields", {}):
            rest: JsonObject = {}
            for name, setting in value.items():
                (config if _takes_field(kind, name, setting, INSIDE) else rest)[name] = setting
            if rest or not value:
                extra[key] = rest
        else:
            (config if _takes_field(kind, key, value, NEXT_TO_CONFIG) else extra)[key] = value
    return config


def _takes_field(kind: Any, key: str, value: Any, known: Collection[str]) -> bool:
    """Whether a config takes a value under a key, and the SDK sends it as it is, where it stands."""
    known = {*known, _SETTINGS[1]}
    fields = getattr(kind, "model_fields", {}).items()
    if not any(name in known and key in (name, field.alias) for name, field in fields):
        return False
    if key == "tools" and any(_SCHEMAS & function.keys() for function in _functions(value)):
        return False
    try:
        kind.model_validate({key: value})
    except ValueError:  # Pydantic's
        return False
    return True


def _functions(tools: Any) -> Iterator[JsonObject]:
    for tool in tools if isinstance(tools, list) else [tools]:
        for key in _FUNCTIONS:
            functions = tool.get(key) if isinstance(tool, dict) else None
            yield from (one for one in functions or () if isinstance(one, dict))


def _takes(kind: Any, contents: Any) -> bool:
    """Whether the type of a content takes all contents; an object in place of a list is no content of the SDK."""
    if kind is None or not isinstance(contents, list):
        return False
    try:
        for content in contents:
            kind.model_validate(content)
    except ValueError:
        return False
    return True


def _models(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models(inner)
