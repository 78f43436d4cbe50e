#!/usr/bin/env bash
# Pydantic AI writes a history whose retry has error details without `input`, as Pydantic's own
# `errors(include_input=False)` gives them, and cannot read its own JSON: one such message makes the whole history
# unreadable.
#
# Expected: what ModelMessagesTypeAdapter dumps, it validates. Exits 1 if the behaviour changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pydantic-ai-slim==2.68.0
"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import sys
import warnings

from pydantic import BaseModel, ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, RetryFeedbackPart, RetryInfo, UserPromptPart

warnings.simplefilter("ignore")


class Sum(BaseModel):
    a: int
    b: int


try:
    Sum.model_validate({"a": 1})
except ValidationError as error:
    details = error.errors(include_input=False, include_url=False)
retry = RetryFeedbackPart(content=details, retry=RetryInfo(cause="validation_error"))
history = [ModelRequest(parts=[UserPromptPart("Add.")]), ModelRequest(parts=[retry])]
written = ModelMessagesTypeAdapter.dump_json(history)
print("pydantic-ai-slim", importlib.metadata.version("pydantic-ai-slim"))
try:
    ModelMessagesTypeAdapter.validate_json(written)
    seen = "read"
except ValidationError as error:
    seen = f"{error.error_count()} errors, the first at {error.errors()[0]['loc']}"
print("expected: the history is read; seen:", seen)
sys.exit(seen == "read")
PYTHON
