#!/usr/bin/env bash
# mistral-common, the validator of Mistral's models in vLLM and of Mistral's own tokenizers, takes a system message
# directly after a user message, but refuses one directly after an assistant message or a tool's output, in every
# version of its tokenizers since v7. Agents put their reminders exactly there: between an answer and the next question.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mistral-common==1.13.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

from mistral_common.exceptions import MistralCommonException
from mistral_common.protocol.instruct.normalize import get_normalizer
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import TokenizerVersion

SYSTEM = {"role": "system", "content": "The user has moved to Oslo."}
USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}


def verdict(messages, tokenizer):
    request = ChatCompletionRequest(messages=messages)
    request = get_normalizer(tokenizer, None).from_chat_completion_request(request)
    try:
        get_validator(tokenizer, ValidationMode.serving).validate_messages(request.messages)
    except MistralCommonException as error:
        return str(error)
    return "taken"


print("mistral-common", version("mistral-common"))
is_as_known = True
for tokenizer in (TokenizerVersion.v7, TokenizerVersion.v11, TokenizerVersion.v13):
    after_user = verdict([USER, SYSTEM, USER], tokenizer)
    after_answer = verdict([USER, ANSWER, SYSTEM, USER], tokenizer)
    print(f"{tokenizer.value}: system after user: {after_user}; system after assistant: {after_answer}")
    is_as_known &= after_user == "taken" and "Unexpected role 'system' after role 'assistant'" in after_answer
print("as expected" if is_as_known else "the behaviour has changed")
sys.exit(not is_as_known)
PYTHON
