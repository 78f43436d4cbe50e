"""The cases of the reference behaviour, one test each; where they are wrong is said in DIFFERENT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.reference_cases import FORMATS, cases_in, error_of, with_patterns, without_ours
from threadkeep.domain.items import items_from
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.formats import get_format

# quirks of the reference system for which there is a better rule
DIFFERENT = {
    "chat_completion/req/call-then-user": "an unanswered call gets a placeholder",
    "chat_completion/req/tool-output-image-only": "an output without a call is dropped",
    "chat_completion/req/tool-output-empty-array": "the same",
    "chat_completion/req/parallel-tool-calls-without-tools": "the service takes it with tools only",
    "converse/req/tool-strict-dropped": "the service takes strict tools",
    "converse/resp/unknown-block-skipped": "text with citations is text",
    "messages/req/file-media-type-override": "plain text goes as a text source",
    "messages/req/tool-result-only-file": "results hold documents",
    "messages/req/think-disabled-free": "newer models take one sampler",
    "gemini/req/assistant-becomes-model": "the first turn is the user's",
    "gemini/req/signatures-on-call-and-text": "the same",
    "gemini/req/function-call": "an unanswered call gets a placeholder",
    "gemini/req/summary-drops-signed-content-too": "a summary hides no thoughts",
    "gemini/req/function-output-status-ignored": "a failure is an error",
    "gemini/req/function-call-id-reused-last-name-wins": "an output has the name of its own call",
    "gemini/req/file-data-url-filename-beats-declared": "the type that is stated counts",
    "gemini/req/file-file-id-filename-not-used": "the name of a file says its type",
    "gemini/req/extra-cached-content-beside-tools": "the service takes no tools beside a cached content",
    "gemini/resp/finish-unknown-passes-through": "an unknown word means completed",
    "gemini/resp/max-tokens-no-incomplete-details": "why a response is not whole is said",
    "gemini/resp/failed-no-error-object": "the same",
    "gemini/resp/prompt-blocked": "the same",
    "gemini/resp/missing-candidates-blocked-prompt": "a blocked prompt is a failed response",
    "gemini/resp/provider-data-unknown-keys-lost": "unknown keys are provider data",
    "chat_completion/resp/finish-unknown": "an unknown word means completed",
    "chat_completion/resp/missing-model": "a body without a model is read",
}


# cases without a quirk for which there is another rule today
DECIDED = {
    "chat_completion/req/tool-output-mixed-parts": "images and files of outputs are sent in a user message",
    "converse/req/tool-result-empty-array": "the service refuses blank texts: an output without content says so",
    "converse/req/tool-result-null": "the same",
    "converse/req/tool-result-web-video-dropped": "a note says what was left out",
    "messages/resp/stop-pause-turn": "a paused answer is not complete",
    "chat_completion/resp/malformed-arguments-kept": "the last call of an answer that was cut off is incomplete",
}


def cases(name: str) -> list[Any]:
    """The cases of a file that are not listed as different."""
    others = DIFFERENT | DECIDED
    return [pytest.param(case, id=case["id"]) for case in cases_in(name) if case["id"] not in others]


def seen_of(response: Response, key: str) -> Any:
    """A figure of a response as the cases name it."""
    readers: dict[str, Callable[[], Any]] = {
        "text": lambda: response.text,
        "items": lambda: without_ours([item.to_dict() for item in response.output]),
        "provider_data": lambda: response.provider_data,
        "usage": lambda: response.usage and response.usage.to_dict(),
    }
    return readers.get(key, lambda: getattr(response, key))()


@pytest.mark.parametrize("case", [case for name in FORMATS for case in cases(f"{name}_request")])
def test_a_session_becomes_this_request(case: dict[str, Any]) -> None:
    session, format_name = Session.from_dict(case["session"]), case["id"].partition("/")[0]
    if "error" in case:
        with pytest.raises(error_of(case)):
            session.request_payload(format_name, strict=True)
    else:
        assert session.request_payload(format_name) == case["payload"]


@pytest.mark.parametrize("case", [case for name in FORMATS for case in cases(f"{name}_response")])
def test_a_body_becomes_this_response(case: dict[str, Any]) -> None:
    wire_format = get_format(case["id"].partition("/")[0])
    if "error" in case:
        with pytest.raises(error_of(case)):
            wire_format.parse_response(case["body"], case.get("headers"))
        return
    response = wire_format.parse_response(case["body"], case.get("headers"))
    found = {key: seen_of(response, key) for key in case["expect"]}
    assert with_patterns(found, case["expect"]) == case["expect"]


@pytest.mark.parametrize("case", cases("core_flows"))
def test_a_conversation_of_several_steps_becomes_this_request(case: dict[str, Any]) -> None:
    session = Session.from_dict(case["session"])
    for step in case["steps"]:
        if "response" in step:
            session.add_response(step["response"], step["format"])
        else:
            session.add_items(items_from(step["input"]))
    assert session.request_payload(case["format"]) == case["payload"]


def test_only_quirks_are_different() -> None:
    files = [f"{name}_{kind}" for name in FORMATS for kind in ("request", "response")]
    about = {case["id"]: case["about"] for file in files for case in cases_in(file)}
    assert all(about[name].startswith("quirk:") for name in DIFFERENT)
    assert not any(about[name].startswith("quirk:") for name in DECIDED)
