"""What a format's declaration says of its JSON; see `threadkeep.domain.formats.Format`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Signs:
    """How a format's JSON looks, so that an error about a body of another format can name that format."""

    turns: str  # the key of a request that holds its history
    body: Mapping[str, type]  # keys that only its response bodies have -> the type of their values
    events: Mapping[str, type] = field(default_factory=dict)  # the same for the events of its streams
    event_types: tuple[str, ...] = ()  # how the types of its events begin


@dataclass(frozen=True, slots=True)
class ErrorKeys:
    """Where a provider's error bodies say what happened, beyond the shapes that all formats know."""

    holders: tuple[str, ...]  # keys of objects that may hold the others; these may also stand in the body itself
    type: str  # the key of the kind of error
    code: str
    messages: tuple[str, ...]  # keys of the sentence for people; the first one with a value counts


@dataclass(frozen=True, slots=True)
class MediaUrls:
    """Which media a format takes by URL, so that they need not be sent, or even read."""

    parts: Mapping[str, str]  # type of a part -> a regular expression for the media types
    url: str = ".+"  # how the URL must look
    in_outputs: bool = True  # whether outputs of tools take them, too
    needs_type: bool = False  # whether the media type must be stated beside the URL
    inline_key: str = ""  # of inline media, where URLs have another: what came with more under it is sent as it came
