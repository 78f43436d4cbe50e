"""Providers behind the server: which format they speak, and how they are asked for a stream."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from time import monotonic
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary

import httpx2

from threadkeep.domain import formats, printing
from threadkeep.domain.jsontext import REQUEST_DEPTH, JsonObject, dumps, loads
from threadkeep.domain.rendering import Rendered
from threadkeep.errors import InvalidOption, UnknownFormat
from threadkeep.formats import FormatName
from threadkeep.formats.shared.arguments import is_unicode
from threadkeep.server import problems, provider_answers
from threadkeep.server.provider_connections import ProviderClient, ssl_context

logger = logging.getLogger(__name__)

MAX_MODEL: Final = 256  # characters of the name of a model; it is repeated wherever an answer is shown
CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 600.0  # without a sign of life from the provider
KEPT_CONNECTIONS: Final = 100  # to each provider, for further requests
LISTED_SECONDS: Final = 300.0  # for which a list of models counts …
LIST_AGAIN_SECONDS: Final = 30.0  # … and after which it is asked for again, where it did not come
LIST_SECONDS: Final = 5.0  # for which it is waited
MAX_LIST_BYTES: Final = 4 * 1024 * 1024
_NOT_FOUND: Final = 404
_KEY_LENGTH: Final = 6  # characters of a key that no other words are likely to have
_VERSION: Final = re.compile(r"/v\d[^/]*$")
_MAX_NAMED: Final = 100  # characters of a header that an error repeats
_NAMED: Final = re.compile(r"(?P<name>[\w-]{1,64})=(?P<format>\w+)@(?P<url>\S+)")
# what a URL has before its host, with its scheme as the group; it may lack slashes
_USER: Final = re.compile(r"^((?:[A-Za-z][\w+.-]*:)?/*)[^/?#]*@")

# A request's payload and model -> the events of the provider's answer
Ask: TypeAlias = Callable[[JsonObject, str], AsyncGenerator[Any]]
Count: TypeAlias = Callable[[JsonObject, str], Awaitable[int]]  # the same -> the tokens of its input
ListModels: TypeAlias = Callable[[], Awaitable[Sequence[str]]]  # the names of a provider's models


def spoken_format(name: FormatName) -> formats.ProviderApi:
    """Return how providers are asked in a format; raise UnknownFormat, or InvalidOption if none answers in it."""
    is_format = name in formats.format_names()
    if is_format and (api := formats.get_format(name).api) is not None:
        return api
    answered = sorted(one for one in formats.format_names() if formats.get_format(one).api)
    if not is_format:
        raise UnknownFormat(name, answered)
    hint = f"Known formats: {', '.join(answered)}."
    raise InvalidOption(f"is {name}, in which no provider answers.", argument="format", hint=hint)


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider that answers requests of one format.

    Attributes:
        name: what the ledger calls the provider.
        format: the format of its requests and events.
        ask: takes a request's payload and model, and yields the events of the answer: dicts, JSON text, or lines of an
            event stream. It raises `UpstreamError` if the provider refuses.
        model: the model to ask for, whatever model the request names; None for that one.
        base_url: its URL, by which its prices are found where its name is no provider's.
        count: takes a request's payload and model, and returns how many tokens its input has, as the provider counts
            them. It raises `UpstreamError` if the provider refuses. None: this cannot be asked.
        models: returns the names of the provider's models, of which those are listed that a pattern stands for. None:
            they are not known.
    """

    name: str
    format: FormatName
    ask: Ask = field(repr=False)
    model: str | None = None
    base_url: str | None = None
    count: Count | None = field(default=None, repr=False)
    models: ListModels | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        spoken_format(self.format)

    def batches(
        self,
        rendered: Rendered,
        changes: JsonObject,
        model: str,
        most: int = provider_answers.MAX_ANSWER_BYTES,
        hold: provider_answers.Hold = provider_answers.uncounted,
    ) -> AsyncGenerator[Sequence[Any]]:
        """Return the events of an answer to a request with some keys laid over it; other tasks go on in between.

        It has at most so many bytes, up to its last event. Events that have come at once are in one list. `hold` counts
        the bytes that come over HTTP.
        """
        if isinstance(self.ask, _HttpAsk):
            return self.ask.batches(rendered.changed({**changes, **self.ask.changes}), model, most, hold)
        return provider_answers.sliced(self.ask({**rendered.payload, **changes}, model))

    async def input_tokens(self, payload: JsonObject, model: str) -> int:
        """Return how many tokens the input of a request has, as the provider counts them.

        Raises:
            Problem: it does not count.
            UpstreamError: it refuses, or does not answer.
        """
        if self.count is not None:
            return await self.count(payload, model)
        text = f"{self.name} does not count tokens before it answers ({self.format} has no endpoint for that)"
        instead = "count with the tokenizer of the model, or read the usage of its answers."
        raise problems.Problem(400, f"{text}: {instead}", param="model", code="unsupported")

    async def close(self) -> None:
        """Close the connections that an upstream over HTTP keeps; the lifespan of the application does it, too."""
        if isinstance(self.ask, _HttpAsk):
            await self.ask.close()


def http_upstream(
    name: str, format: FormatName, url: str, *, key: str | None = None, model: str | None = None
) -> Upstream:
    """Return an upstream that is asked over HTTP, at a base URL such as ``https://api.anthropic.com/v1``.

    Args:
        name: what the ledger calls the provider.
        format: the format it speaks.
        url: what comes before the path of the format: ``/responses``, ``/chat/completions``, ``/messages``,
            ``/interactions``, ``/models/…`` or ``/model/…``. Without the version of the API at its end (``/v1``), that
            is added where nothing is found otherwise.
        key: its API key; None for none.
        model: the model to ask for, whatever model the request names.

    Raises:
        UnknownFormat, InvalidOption: an argument cannot be used.
        MissingExtra: the streams of Converse need the extra ``bedrock``.
    """
    api = spoken_format(format)
    base = checked_url(url)
    if format == "converse":
        provider_answers.event_buffer()
    ask = _HttpAsk(name, format, api, base, key)
    count, models = ask.count if format in _COUNTS else None, ask.models if format in _LISTS else None
    return Upstream(name, format, ask, model, base, count, models)


class _HttpAsk:
    """Asks a provider over HTTP, over connections that it keeps, in each event loop."""

    def __init__(self, name: str, format: FormatName, api: formats.ProviderApi, base: str, key: str | None) -> None:
        self._name, self._format, self._api, self._base, self._key = name, format, api, base, key
        self.changes = dict(api.changes)  # keys that are laid over each request
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()
        self._models: Sequence[str] = ()
        self._listed: WeakKeyDictionary[asyncio.AbstractEventLoop, _Listing] = WeakKeyDictionary()

    async def __call__(self, payload: JsonObject, wanted: str) -> AsyncGenerator[Any]:
        """Yield the events of the answer of a model."""
        content = dumps({**payload, **self.changes}, REQUEST_DEPTH)
        asked = self.batches(content, wanted, provider_answers.MAX_ANSWER_BYTES, provider_answers.uncounted)
        async with aclosing(asked) as answer:
            async for batch in answer:
                for event in batch:
                    yield event

    async def batches(
        self, content: bytes, wanted: str, most: int, hold: provider_answers.Hold
    ) -> AsyncGenerator[Sequence[Any]]:
        """Yield the events of the answer of a model, of at most so many bytes, in lists of those that came at once."""
        path = self._api.path.format(model=quote(wanted, safe=""))
        headers = {**self._headers(), "accept-encoding": "identity"}
        asked = self._answer(path, content, headers)
        del content  # which may be large, and an answer may take long
        try:
            async with asked as response:
                if not response.is_success:
                    raise await _refusal(self._name, response, self._key)
                self._check_encoding(provider_answers.encodings(response.headers))
                events = provider_answers.binary_batches if self._format == "converse" else self._text_events
                async with aclosing(events(response, most, hold)) as answer:
                    async for batch in answer:
                        yield batch
        except httpx2.HTTPError as error:
            raise provider_answers.unanswered(self._name, error) from error

    async def count(self, payload: JsonObject, wanted: str) -> int:
        """Return what the provider counts."""
        path, body, key = _COUNTS[self._format](quote(wanted, safe=""), payload)
        content, headers = dumps(body, REQUEST_DEPTH), self._headers()
        try:
            async with self._answer(path, content, headers) as response:
                if not response.is_success:
                    raise await _refusal(self._name, response, self._key)
                found = loads(await provider_answers.error_body(response))
        except httpx2.HTTPError as error:
            raise provider_answers.unanswered(self._name, error) from error
        except ValueError:
            found = None
        count = found.get(key) if isinstance(found, dict) else None
        if isinstance(count, bool) or not isinstance(count, int):
            raise provider_answers.UpstreamError(502, None, f"{self._name} did not answer with a number of tokens.")
        return count

    async def models(self) -> Sequence[str]:
        """Return the names of the provider's models as it has listed them, at most some minutes ago if it can."""
        listing = self._listed.setdefault(asyncio.get_running_loop(), _Listing())
        async with listing.lock:
            if monotonic() >= listing.until:
                listing.until = monotonic() + LIST_AGAIN_SECONDS
                try:
                    async with asyncio.timeout(LIST_SECONDS):
                        self._models = await self._list()
                except (httpx2.HTTPError, TimeoutError, ValueError, provider_answers.UpstreamError) as error:
                    logger.warning("%s does not list its models: %s", self._name, type(error).__name__)
                else:
                    listing.until = monotonic() + LISTED_SECONDS
        return self._models

    async def _list(self) -> Sequence[str]:
        path, key, name = _LISTS[self._format]
        async with self._answer(path, None, self._headers()) as response:
            if not response.is_success:
                raise await _refusal(self._name, response, self._key)
            body = loads(await provider_answers.bounded_body(response, MAX_LIST_BYTES))
        found = body.get(key) if isinstance(body, dict) else None
        names = [one.get(name) for one in (found if isinstance(found, list) else ()) if isinstance(one, dict)]
        return [one.removeprefix("models/") for one in names if isinstance(one, str)]

    @asynccontextmanager
    async def _answer(self, path: str, content: bytes | None, headers: Any) -> AsyncIterator[httpx2.Response]:
        """Ask at the base URL, and where that is not found and lacks the version of the API, with the version."""
        async with self._stream(self._base, path, content, headers) as response:
            versioned = self._base + self._api.version
            if response.status_code != _NOT_FOUND or versioned == self._base or _VERSION.search(self._base):
                del content
                yield response
                return
            async with self._stream(versioned, path, content, headers) as second:
                if second.status_code != _NOT_FOUND:
                    self._base = versioned
                yield second

    def _stream(
        self, base: str, path: str, content: bytes | None, headers: Any
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        if content is None:
            return self._client().stream("GET", parsed_url(base + path), headers=headers)
        headers = {**headers, "content-length": str(len(content))}
        return self._client().stream("POST", parsed_url(base + path), content=_sent_once(content), headers=headers)

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", **self._api.headers}
        if self._key is not None:
            is_bearer = self._api.key_header == "authorization"
            headers[self._api.key_header] = f"Bearer {self._key}" if is_bearer else self._key
        return headers

    def _check_encoding(self, given: list[str]) -> None:
        """Raise UpstreamError for an answer that cannot be decoded: none was asked to be encoded."""
        known = self._client().headers.get("accept-encoding", "").lower().split(", ")
        if len(given) > 1 or not set(given).issubset(known):
            text = f"{self._name} answered in the content-encoding {', '.join(given)[:_MAX_NAMED]}"
            raise provider_answers.UpstreamError(502, None, f"{text}, which cannot be decoded.")

    def _text_events(
        self, response: httpx2.Response, most: int, hold: provider_answers.Hold
    ) -> AsyncGenerator[Sequence[str]]:
        if not provider_answers.is_event_stream(response.headers):
            given = provider_answers.media_type(response.headers) or "unknown"
            text = f"{self._name} answered without a stream of events: the type of its answer is {given},"
            raise provider_answers.UpstreamError(502, None, f"{text} instead of {provider_answers.EVENTS}.")
        return provider_answers.text_batches(response, most, hold)

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
            client = self._clients[loop] = ProviderClient(timeout=timeout, limits=limits, verify=ssl_context())
        return client

    async def close(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


async def _sent_once(content: bytes) -> AsyncGenerator[bytes]:
    """A body that is not kept while its answer comes."""
    yield content


@lru_cache
def parsed_url(text: str) -> httpx2.URL:
    """Return a URL as httpx takes it, which takes longer than to look it up."""
    return httpx2.URL(text)


def named_upstream(text: str, environment: Mapping[str, str] = os.environ) -> Upstream:
    """Return the upstream that ``NAME=FORMAT@URL`` describes; its key is in the variable ``NAME_API_KEY``.

    Raises:
        InvalidOption, MissingExtra: it cannot be used.
    """
    name, spoken, url = upstream_parts(text)
    return http_upstream(name, spoken, url, key=environment.get(key_variable(name)) or None)


def key_variable(name: str) -> str:
    """Return which environment variable has the key of an upstream."""
    return f"{name.upper().replace('-', '_')}_API_KEY"


def upstream_parts(text: str) -> tuple[str, FormatName, str]:
    """Return name, format and URL of ``NAME=FORMAT@URL``.

    Raises:
        InvalidOption: it cannot be used.
    """
    found, rule = _NAMED.fullmatch(text), "must be NAME=FORMAT@URL"
    if found is None:
        raise InvalidOption(f"{rule}, such as anthropic=messages@https://api.anthropic.com/v1.", argument="upstream")
    spoken: Any = found["format"]
    try:
        spoken_format(spoken)
        return found["name"], spoken, checked_url(found["url"])
    except (UnknownFormat, InvalidOption) as error:
        problem = f"{rule}, whose {str(error.argument).upper()} {error.message}"
        raise InvalidOption(problem, argument="upstream", hint=error.hint) from None


def checked_url(url: str) -> str:
    """Return the base URL of a provider without a slash at its end; raise InvalidOption if it is none."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # whose text has the URL
        is_one = False
    if not is_one:
        raise InvalidOption(f"must be an http or https URL, not {shown_url(url)!r}.", argument="url")
    return url.rstrip("/")


def shown_url(url: str) -> str:
    """Return the URL of a provider for messages: without user, password, and keys in its query."""
    shown: str = printing.redact(_USER.sub(r"\1***@", url))
    return shown


def upstream_for(model: str, table: Mapping[str, Upstream]) -> Upstream | None:
    """Return the upstream of a model: the one under its name, else under the first pattern that fits it.

    None if there is none: a name with lone surrogates, which no request can have, matches none, and no longer one.
    """
    if not is_unicode(model) or len(model) > MAX_MODEL:
        return None
    if model in table:
        return table[model]
    return next((upstream for pattern, upstream in table.items() if fnmatchcase(model, pattern)), None)


# How each format is asked how many tokens an input has: path, body, and the key of the answer. Of a request, these
# endpoints take what makes its input. Source: the API references of OpenAI (Responses, input tokens), Anthropic
# (Messages, count tokens), Google (countTokens) and Amazon (CountTokens); Chat Completions has none.

_INPUT_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "open_responses": frozenset(
        {"conversation", "input", "instructions", "model", "parallel_tool_calls", "personality",
         "previous_response_id", "reasoning", "text", "tool_choice", "tools", "truncation"}
    ),
    "messages": frozenset(
        {"cache_control", "context_management", "mcp_servers", "messages", "model", "output_config", "system",
         "thinking", "tool_choice", "tools"}
    ),
    "converse": frozenset({"messages", "system", "toolConfig", "additionalModelRequestFields"}),
}  # fmt: skip


def _input_of(format: str, payload: JsonObject) -> JsonObject:
    return {key: value for key, value in payload.items() if key in _INPUT_KEYS[format]}


_COUNTS: Final[Mapping[str, Callable[[str, JsonObject], tuple[str, JsonObject, str]]]] = {
    "open_responses": lambda _, payload: (
        "/responses/input_tokens", _input_of("open_responses", payload), "input_tokens"
    ),
    "messages": lambda _, payload: ("/messages/count_tokens", _input_of("messages", payload), "input_tokens"),
    "gemini": lambda model, payload: (
        f"/models/{model}:countTokens", {"generateContentRequest": {"model": f"models/{model}", **payload}},
        "totalTokens",
    ),
    "converse": lambda model, payload: (
        f"/model/{model}/count-tokens", {"input": {"converse": _input_of("converse", payload)}}, "inputTokens"
    ),
}  # fmt: skip


# How each format lists its models: path, the key of the list, and the key of a name. Source: the API references of
# OpenAI, Anthropic and Google, "Models"; Amazon lists them elsewhere than it answers.
_LISTS: Final[Mapping[str, tuple[str, str, str]]] = {
    **dict.fromkeys(("open_responses", "chat_completion"), ("/models", "data", "id")),
    "messages": ("/models?limit=1000", "data", "id"),
    **dict.fromkeys(("gemini", "interactions"), ("/models?pageSize=1000", "models", "name")),
}


class _Listing:
    """When the models of a provider are to be listed again."""

    def __init__(self) -> None:
        self.lock, self.until = asyncio.Lock(), 0.0


async def _refusal(name: str, response: httpx2.Response, key: str | None) -> provider_answers.UpstreamError:
    """What a refusal is raised as, without the key that was sent."""
    try:
        text = await provider_answers.error_body(response)
        if key is not None and len(key) >= _KEY_LENGTH:
            text = text.replace(key.encode(), printing.HIDDEN.encode())
        body = loads(text)
    except (ValueError, httpx2.DecodingError):
        body = None
    asked = f" at {shown_url(str(response.url))}" if response.status_code == _NOT_FOUND else ""
    message = f"{name} answered with status {response.status_code}{asked}."
    return provider_answers.UpstreamError(response.status_code, body, message, response.headers.get("retry-after"))
