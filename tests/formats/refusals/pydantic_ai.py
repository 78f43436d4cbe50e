"""What a run of Pydantic AI refuses in a message history, or its types do not have."""

from __future__ import annotations

from tests.formats.factories import assistant, call, output, user
from tests.formats.refusals.rows import ABSENT, GITHUB, LOOKUP, Json, Provider, Refusal, function, picture

_DOCS = "https://ai.pydantic.dev/"
_HISTORY = _DOCS + "message-history/"
_MESSAGES = _DOCS + "api/messages/"
_SHELL: Json = {"type": "shell_call", "call_id": "s1", "action": {"commands": ["ls"]}, "status": "completed"}

HISTORY = Provider(
    "Pydantic AI",
    "pydantic_ai",
    "openai:gpt-5.4",
    (
        Refusal("a call without its return", _HISTORY, "missing_output",
                {"message_history.2.parts.0.part_kind": "tool-return"}, [user("Hi"), call(), user("b")], LOOKUP),
        Refusal("a return without its call", _HISTORY, "orphan_output", {"message_history.1": ABSENT},
                [user("Hi"), output()]),
        Refusal("a return that is not directly behind its call", _HISTORY, "moved_output",
                {"message_history.2.parts.0.part_kind": "tool-return"},
                [user("Hi"), call(), user("Wait."), output()], LOOKUP),
        Refusal("a call id twice", GITHUB + "earendil-works/pi/issues/9057", "duplicate_call_id", {},
                [user("Hi"), call(), call(), output(), output()], LOOKUP),
        Refusal("arguments that are no JSON", _MESSAGES, "malformed_arguments", {},
                [user("Hi"), call(arguments="{"), output()], LOOKUP),
        Refusal("a call without a name", _MESSAGES, "name", {}, [user("Hi"), call(name=""), output()], LOOKUP),
        Refusal("a refusal as a part", _MESSAGES, "refusal", {},
                [user("Hi"), assistant({"type": "refusal", "refusal": "No."}), user("b")]),
        Refusal("a picture by the id of a file", _DOCS + "input/", "image_source", {},
                [user("See:", {"type": "input_image", "file_id": "file-1"})]),
        Refusal("a picture that is not base64", _DOCS + "input/", "data_url", {},
                [user("See:", picture(data="###"))]),
        Refusal("a picture of the assistant", _MESSAGES, "media", {},
                [user("Hi"), assistant("Look:", picture()), user("b")]),
        Refusal("a call of a tool of OpenAI's own", _MESSAGES, "item", {}, [user("Hi"), _SHELL, user("b")]),
        Refusal("an unknown role", _MESSAGES, "role", {"message_history.0.parts.0.part_kind": "user-prompt"},
                [user("Hi", role="critic")]),
        Refusal("a name with a dot", _DOCS + "tools/", "name", {"tools.0.name": "my_tool"},
                tools=(function("my.tool"),)),
    ),
)  # fmt: skip
