"""Keyword arguments for the methods of SDKs.

A method is asked for its parameters, and its SDK is not imported: a key of the request that is a parameter becomes an
argument, and every other key goes into `extra_body`, which SDKs merge into the JSON that they send.

Source: the signatures of openai, anthropic and google-genai; botocore's service model. The tests compare them with the
tables here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender, InvalidOption, shown

if TYPE_CHECKING:
    from threadkeep.domain.rendering import Rendered

EXTRA_BODY: Final = "extra_body"
# parameters of SDK methods that are no keys of a request, or stand elsewhere in it than where they were rendered
NO_KEYS: Final = frozenset(
    {
        *("extra_headers", "extra_query", EXTRA_BODY, "timeout"),  # of each method
        *("text_format", "output_format", "parse_as", "verbosity"),  # of parse and stream: types, and text.verbosity
        *("response_id", "starting_after"),  # of responses.stream, which can also follow a stored response
        *("max_iterations", "run_tools_eagerly", "compaction_control"),  # of tool_runner
    }
)
# keys of a request that one format has under a name above
KEYS: Final = {"chat_completion": frozenset({"verbosity"})}
# keys that SDKs take next to the keys of a request, and send as a header
HEADERS: Final = {"messages": {"betas": "anthropic-beta"}}
# methods that ask for no answer, and take nothing that is about one
NO_ANSWER: Final = frozenset({"count_tokens", "count", "compact"})
# methods whose SDK refuses tools other than strict functions: it has types parse their arguments
PARSING: Final = {"chat_completion": frozenset({"parse", "stream"})}
_KEYWORDS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments(rendered: Rendered, method: Callable[..., Any], stream: bool | None) -> JsonObject:
    """The arguments with which a method of an SDK sends the request."""
    format_name, name = rendered.view["format"], name_of(method)
    accepted = parameters_of(method)
    payload = _with_stream(_with_stream_options(rendered, name, stream), name, accepted, stream)
    if accepted is None:
        return payload
    turns = get_format(format_name).signs.turns
    if turns not in accepted:
        raise wrong_method(name, f"takes no {turns}", format_name)
    keys = _keys(payload, accepted, name, format_name)
    result = {key: payload.pop(key) for key in list(payload) if key in keys}
    if payload and name in NO_ANSWER:
        return result
    if "extra_headers" in accepted and format_name in HEADERS:
        result |= _headers(payload, HEADERS[format_name])
    if payload and EXTRA_BODY not in accepted:
        raise not_sent(payload, name)
    return result | ({EXTRA_BODY: payload} if payload else {})


def _keys(payload: JsonObject, accepted: frozenset[str], name: str, format_name: str) -> frozenset[str]:
    """The keys of a request that a method takes as arguments."""
    keys = accepted - NO_KEYS | accepted & KEYS.get(format_name, frozenset())
    if name in PARSING.get(format_name, ()) and not all(map(_is_strict, payload.get("tools") or ())):
        keys -= {"tools"}
    return keys


def _is_strict(tool: Any) -> bool:
    """Whether a tool of Chat Completions is a strict function."""
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    return isinstance(function, dict) and function.get("strict") is True


def _headers(payload: JsonObject, names: Mapping[str, str]) -> JsonObject:
    """The headers that a method gets in place of keys of the request, which are taken out."""
    headers = {
        header: ",".join(payload.pop(key)) for key, header in names.items() if isinstance(payload.get(key), list)
    }
    return {"extra_headers": headers} if headers else {}


def _with_stream_options(rendered: Rendered, name: str, stream: bool | None) -> JsonObject:
    """The request with options of a stream where the call asks for one, and without them where it asks for none."""
    payload = dict(rendered.payload)
    if stream is False:
        payload.pop("stream_options", None)  # OpenAI refuses them without a stream
    elif rendered.stream_options and (stream or name == "stream"):
        payload.setdefault("stream_options", rendered.stream_options)
    return payload


def _with_stream(payload: JsonObject, name: str, accepted: Collection[str] | None, stream: bool | None) -> JsonObject:
    """The request with `stream` where the method takes it; a method that streams itself sets it itself."""
    if accepted is None or "stream" in accepted:
        return payload if stream is None else payload | {"stream": stream}
    check_stream(stream, name, streams=name == "stream")
    if name == "stream" or stream is False:
        payload.pop("stream", None)
    if payload.get("stream") and name not in NO_ANSWER:
        problem = f"The request asks for a stream, and {name} returns none."
        raise InvalidOption(problem, argument="method", hint="Pass stream=False, or a method that streams.")
    return payload


def check_stream(stream: bool | None, name: str, *, streams: bool) -> None:
    """Raise InvalidOption if a method that always streams, or never does, is asked for the other."""
    if stream is not None and stream is not streams:
        problem = f"{name} {'always streams' if streams else 'does not stream'}."
        raise InvalidOption(problem, argument="stream", hint="Pass another method of the SDK.")


def parameters_of(method: Callable[..., Any]) -> frozenset[str] | None:
    """The names of the keyword parameters of a method; None if it takes any."""
    if not callable(method):
        problem = f"must be a method of an SDK, not {shown(method)}."
        raise InvalidOption(problem, argument="method", hint="Pass the method itself: client.messages.create.")
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"{name_of(method)} has no signature: {error}.", argument="method") from error
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters if parameter.kind in _KEYWORDS)


def name_of(method: object) -> str:
    """The name of a method, also of one of which arguments are given already."""
    return str(getattr(getattr(method, "func", method), "__name__", type(method).__name__))


def wrong_method(name: str, problem: str, format_name: str) -> InvalidOption:
    """The error for a method that does not send requests of the format."""
    hint = f"Pass the method that sends requests of the format {format_name}, or send rendered.body yourself."
    return InvalidOption(f"{name} {problem}.", argument="method", hint=hint)


def not_sent(keys: Iterable[str], name: str) -> CannotRender:
    """The error for keys of a request that a method has no place for."""
    problem = f"{name} cannot send {', '.join(sorted(keys))}."
    return CannotRender(problem, hint="Leave it out (it is an option, or in `extra`), or send rendered.body yourself.")
