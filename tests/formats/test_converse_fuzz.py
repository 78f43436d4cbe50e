"""Whatever stands in a body, request or stream: reading and rendering end well, or in an error of threadkeep."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from threadkeep.domain.session import Session
from threadkeep.errors import ThreadkeepError
from threadkeep.formats import get_format

FORMAT = get_format("converse")
WORDS = st.sampled_from(
    ["", " ", "text", "ZW5j", "user", "assistant", "system", "default", "pdf", "s3://bucket/a.pdf", "\ud800"]
)
ODD = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS, st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(WORDS, inner, max_size=2)),
    max_leaves=4,
)


@st.composite
def some(draw: st.DrawFn, /, **keys: st.SearchStrategy[Any]) -> dict[str, Any]:
    """An object with some of these keys; now and then one of them holds what it should not."""
    chosen = [key for key in keys if draw(st.booleans())]
    return {key: draw(ODD if draw(st.integers(0, 9)) == 9 else keys[key]) for key in chosen}


SOURCES = some(bytes=st.one_of(WORDS, st.just(b"data")), s3Location=some(uri=WORDS), text=WORDS)
MEDIA = some(format=WORDS, name=WORDS, source=SOURCES)
RESULTS = some(text=WORDS, json=ODD, image=MEDIA, document=MEDIA, searchResult=ODD)
BLOCKS = some(
    text=WORDS,
    image=MEDIA,
    document=MEDIA,
    video=MEDIA,
    audio=MEDIA,
    toolUse=some(toolUseId=WORDS, name=WORDS, input=ODD, type=WORDS),
    toolResult=some(toolUseId=WORDS, content=st.lists(RESULTS, max_size=2), status=WORDS),
    reasoningContent=some(reasoningText=some(text=WORDS, signature=WORDS), redactedContent=WORDS),
    citationsContent=some(content=st.lists(some(text=WORDS), max_size=2), citations=st.lists(ODD, max_size=2)),
    guardContent=some(text=some(text=WORDS)),
    cachePoint=some(type=WORDS),
).map(lambda block: dict(list(block.items())[:2]))
CONTENT = st.lists(st.one_of(BLOCKS, ODD), max_size=4)
MESSAGES = some(role=WORDS, content=CONTENT)
TOOLS = some(
    toolSpec=some(name=WORDS, description=WORDS, inputSchema=some(json=ODD), strict=st.booleans()), cachePoint=ODD
)
REQUESTS = some(
    modelId=WORDS,
    system=CONTENT,
    messages=st.lists(MESSAGES, max_size=3),
    inferenceConfig=some(maxTokens=st.integers(), temperature=st.floats(), stopSequences=st.lists(WORDS, max_size=2)),
    toolConfig=some(tools=st.lists(TOOLS, max_size=2), toolChoice=some(auto=ODD, tool=some(name=WORDS))),
    outputConfig=some(textFormat=some(type=st.just("json_schema"), structure=some(jsonSchema=some(schema=WORDS)))),
    requestMetadata=st.dictionaries(WORDS, ODD, max_size=2),
    serviceTier=some(type=WORDS),
    other=ODD,
)
BODIES = some(
    output=some(message=MESSAGES),
    stopReason=WORDS,
    usage=some(inputTokens=st.integers(), outputTokens=st.integers(), totalTokens=ODD, cacheReadInputTokens=ODD),
    trace=some(promptRouter=some(invokedModelId=WORDS)),
    message=WORDS,
    ResponseMetadata=some(RequestId=WORDS, HTTPHeaders=some(text=WORDS)),
)
INDEXES = st.sampled_from([0, 1, None, "0"])
DELTAS = some(
    text=WORDS,
    toolUse=some(input=WORDS),
    toolResult=st.lists(some(text=WORDS, json=ODD), max_size=2),
    reasoningContent=some(text=WORDS, signature=WORDS, redactedContent=st.one_of(WORDS, st.just(b"x"))),
    citation=ODD,
    image=ODD,
)
EVENTS = st.lists(
    some(
        messageStart=some(role=WORDS),
        contentBlockStart=some(contentBlockIndex=INDEXES, start=some(toolUse=some(toolUseId=WORDS, name=WORDS))),
        contentBlockDelta=some(contentBlockIndex=INDEXES, delta=DELTAS),
        messageStop=some(stopReason=WORDS),
        metadata=some(usage=ODD, metrics=ODD),
        throttlingException=some(message=WORDS),
    ),
    max_size=6,
)


@given(body=st.one_of(BODIES, ODD), headers=st.one_of(st.none(), st.dictionaries(WORDS, ODD, max_size=2)))
def test_any_body_is_read_or_refused(body: Any, headers: Any) -> None:
    before = copy.deepcopy(body)
    with contextlib.suppress(ThreadkeepError):
        response = FORMAT.parse_response(body, headers)
        session = Session(model="m", input="Hi")
        session.add_response(response)
        assert json.loads(session.render("converse").body)
    assert repr(body) == repr(before)


@given(payload=st.one_of(REQUESTS, ODD), data=st.data())
def test_any_request_is_read_and_rendered_or_refused(payload: Any, data: st.DataObject) -> None:
    before = copy.deepcopy(payload)
    with contextlib.suppress(ThreadkeepError):
        session = FORMAT.parse_request(payload, model=data.draw(st.one_of(st.none(), WORDS)))
        assert Session.from_dict(session.to_dict()).to_dict() == session.to_dict() or "nan" in repr(payload)
        for format_name in ("converse", "open_responses", "chat_completion"):
            with contextlib.suppress(ThreadkeepError):
                assert json.loads(session.render(format_name).body)
    assert repr(payload) == repr(before)


@given(events=EVENTS)
def test_any_stream_is_put_together_or_refused(events: list[Any]) -> None:
    before = copy.deepcopy(events)
    assembler = FORMAT.assembler()
    for event in events:
        with contextlib.suppress(ThreadkeepError):
            assembler.feed(event)
        with contextlib.suppress(ThreadkeepError):
            assert assembler.partial.status == "in_progress"
    with contextlib.suppress(ThreadkeepError):
        assert assembler.response.format == "converse"
    assert repr(events) == repr(before)
