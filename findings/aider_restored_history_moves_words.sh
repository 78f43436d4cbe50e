#!/usr/bin/env bash
# What aider --restore-chat-history makes of its own file, in which questions are lines that begin with "#### ", and
# notices of aider lines that begin with "> ". Answers of models are Markdown, and are written there as they are:
# - a heading of the fourth level in an answer becomes a question of the user, and cuts the answer in two;
# - quotations are gone, and so is every line that begins with "# ", comments in code blocks among them.
# The model is told this as what was said, without a warning: here, the user asked to "Delete the old copies".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aider-chat==0.86.2 2>/dev/null
mkdir -p "$folder/.aider/caches"
echo '{"unused": {}}' >"$folder/.aider/caches/model_prices_and_context_window.json"  # so that it asks for no prices
cd "$folder"
HOME="$folder" AIDER_ANALYTICS=false LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

from aider.coders import Coder
from aider.io import InputOutput
from aider.models import Model

ANSWER = """Two steps.

#### Make the copies

```bash
# at most ten
rotate --keep 10
```

> Never run it twice.

#### Delete the old copies

The script does it."""


def session():
    io = InputOutput(pretty=False, yes=True, fancy_input=False, chat_history_file=".aider.chat.history.md")
    coder = Coder.create(Model("gpt-4o"), "ask", io, use_git=False, map_tokens=0, restore_chat_history=True)
    return io, coder


io, _ = session()
io.user_input("How do I rotate backups?")
io.ai_output(ANSWER)
_, restored = session()
seen = [(message["role"], message["content"].strip()) for message in restored.done_messages]
print("aider-chat", version("aider-chat"))
for role, text in seen:
    print(f"{role}: {text!r}")
expected = [
    ("user", "How do I rotate backups?"),
    ("assistant", "Two steps."),
    ("user", "Make the copies"),
    ("assistant", "```bash\nrotate --keep 10\n```"),
    ("user", "Delete the old copies"),
    ("assistant", "The script does it."),
]
if seen != expected:
    sys.exit("This is not what aider did.")
PYTHON
