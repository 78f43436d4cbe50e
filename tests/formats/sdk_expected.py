"""What is known to be wrong with values of the SDKs' types, as regular expressions of what the tests print."""

from __future__ import annotations

from typing import Final

EXPECTED: Final[tuple[str, ...]] = (
    # keys that may not go back, or vanish in other formats
    r"silent openai\..*'async'",
    r"unfit openai\..*(FunctionCallOutput|EasyInputMessageParam|ImageGenerationCall)",
    r"unfit openai\..*(CodeInterpreter|ComputerCall|input\.Message|ToolSearch)",
    r"unfit openai\..*(ResponseOutputMessage|ReasoningItem|annotations|FileSearch|ApplyPatch|DoubleClick)",
    # what stands for what it replaced
    r"changed .*Compaction",
    # the types have no `call_id`, without which the service finds no output (openai-agents-python 1855)
    r"unfit openai\..*LocalShellCallOutput\.call_id",
    # documents, pictures and texts with more than a text
    r"silent bedrock\.",
    r"silent anthropic\.",
    r"silent google\.",
    r"silent openai\..* options",
    r"silent .*file_(id|url)",
    r"unfit bedrock\.request|unfit pydantic_ai\.request|unfit openai\.chat\.request options",
    r"changed openai\.(chat|conversations)",
    r"changed anthropic\..*file_id",
    r"streamed ",
)
