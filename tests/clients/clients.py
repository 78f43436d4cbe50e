"""The clients that are run: how each is set up in an own home, and how a turn is taken with it, headless.

Versions and what they send were looked at in November 2026; the Makefile installs them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FOLDER = Path(os.environ.get("THREADKEEP_TEST_CLIENTS", "")).resolve()
PATH = os.pathsep.join([str(FOLDER / "node_modules/.bin"), os.environ["PATH"]])  # a node may be installed there
SECONDS = 300  # for a run of a client: its first start in a new home takes some
CONTEXT = 200_000  # tokens that a model takes
FUNCTION = "def shell(command: str) -> str:\n    'Run a command.'\n    return 'hi'\n"


class DidNotEndError(Exception):
    """A client did not end in time; what it printed."""


@dataclass
class Home:
    """A home and a folder of work for a client."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        return self.path / "work"

    def write(self, name: str, value: Any) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value if isinstance(value, str) else json.dumps(value))

    def start(self, *command: Any) -> subprocess.Popen[str]:
        self.work.mkdir(exist_ok=True, parents=True)
        environment = {"PATH": PATH, "HOME": str(self.path), "TERM": "dumb", **self.environment}
        return subprocess.Popen(
            [*map(str, command)], cwd=self.work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *commands: Sequence[Any], may_fail: bool = False) -> str:
        """Run programs at the same time, and return what they printed."""
        printed = ""
        started = [self.start(*command) for command in commands]
        for process in started:
            try:
                out, error = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                out, error = process.communicate()
                raise DidNotEndError(out + error) from None
            assert may_fail or process.returncode == 0, out + error
            printed += out
        return printed

    def newest(self, pattern: str) -> Path:
        """The newest of the files that a client wrote."""
        return max(self.path.glob(pattern), key=lambda file: file.stat().st_mtime)


@dataclass(frozen=True)
class Client:
    """A client.

    Attributes:
        program: below the folder where the clients are installed.
        formats: in which it speaks.
        shell: its tool for commands, with arguments.
        setup: writes what a home needs, for a base URL without `/v1`, and a format.
        turn: the command for a prompt; `more` is one of the next ones.
        resume, fork: what goes on with the last session, and with a copy of it; None if it cannot headless.
        compact: a prompt after which the history has been compacted; empty if it does that when it has become long;
            None if it cannot headless.
        agent: its tool for agents, with arguments; `wait`: the one that waits for them; `agents_by`: options with which
            it has these.
        files: below its home, what it writes of its sessions; empty where that cannot be imported.
        lacks: the situations that it does not come to.
        nameless: formats in which its calls name no session: forks go on in the conversation that they are from.
        in_all_formats: the situations that are tried in each of its formats, others in the first one.
    """

    program: str
    formats: tuple[str, ...]
    shell: tuple[str, Json]
    setup: Callable[[Home, str, str], None]
    turn: Callable[..., list[Any]]
    resume: Callable[[Home], Sequence[Any]] | None = None
    fork: Callable[[Home], Sequence[Any]] | None = None
    compact: str | None = None
    agent: tuple[str, Json] | None = None
    wait: str = ""
    agents_by: tuple[str, ...] = ()
    files: str = ""
    lacks: frozenset[str] = frozenset()
    nameless: frozenset[str] = frozenset()
    in_all_formats: frozenset[str] = frozenset({"resumed"})

    @property
    def path(self) -> Path:
        return FOLDER / self.program

    def has(self, situation: str) -> bool:
        """Whether there is a way to bring it into a situation."""
        ways = {"resumed": self.resume, "forked": self.fork, "compacted": self.compact, "agents": self.agent}
        return ways.get(situation, "") is not None and situation not in self.lacks


def _claude(home: Home, url: str, format_: str) -> None:
    home.environment |= {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1", "IS_SANDBOX": "1",
    }  # fmt: skip


def _claude_turn(prompt: str, more: Sequence[str]) -> list[Any]:
    options = ("--output-format", "json", "--model", "claude-sonnet-5", "--allowedTools", "Bash,Agent")
    return ["-p", prompt, *options, *more]


def _codex(home: Home, url: str, format_: str) -> None:
    home.environment["CODEX_API_KEY"] = "none"
    home.write(
        ".codex/config.toml",
        f'model = "gpt-5.5"\nmodel_provider = "here"\nmodel_auto_compact_token_limit = {CONTEXT}\n'
        f'[model_providers.here]\nname = "here"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        'env_key = "CODEX_API_KEY"\n',
    )


def _codex_turn(prompt: str, more: Sequence[str]) -> list[Any]:
    return ["exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "--json", *more, prompt]


OPENCODE = {
    "open_responses": "@ai-sdk/openai", "chat_completion": "@ai-sdk/openai-compatible",
    "messages": "@ai-sdk/anthropic",
}  # fmt: skip


def _opencode(home: Home, url: str, format_: str) -> None:
    model = {
        "name": "m", "reasoning": True, "tool_call": True, "limit": {"context": CONTEXT, "output": 8000},
        "cost": {"input": 1, "output": 2},
    }  # fmt: skip
    options = {"baseURL": f"{url}/v1", "apiKey": "none"}
    provider = {"npm": OPENCODE[format_], "name": "here", "options": options, "models": {"m": model}}
    config = {"provider": {"here": provider}, "model": "here/m", "autoupdate": False, "share": "disabled"}
    home.write(".config/opencode/opencode.json", config)
    home.environment |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}


PI = {
    "open_responses": "openai-responses", "chat_completion": "openai-completions", "messages": "anthropic-messages",
}  # fmt: skip


def _pi(home: Home, url: str, format_: str, *, is_named: bool = False) -> None:
    model = {
        "id": "m", "name": "m", "reasoning": True, "input": ["text"], "contextWindow": CONTEXT, "maxTokens": 8000,
        "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
    }  # fmt: skip
    base = url if format_ == "messages" else f"{url}/v1"
    provider: Json = {"baseUrl": base, "api": PI[format_], "apiKey": "none", "models": [model]}
    if is_named:
        provider["compat"] = {"sendSessionAffinityHeaders": True}
    home.write(".pi/agent/models.json", {"providers": {"here": provider}})
    home.environment["PI_OFFLINE"] = "1"


def _gemini(home: Home, url: str, format_: str) -> None:
    home.write(".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})
    home.environment |= {
        "GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }  # fmt: skip


def _qwen(home: Home, url: str, format_: str) -> None:
    home.write(".qwen/settings.json", {"security": {"auth": {"selectedType": "openai"}}, "model": {"name": "m"}})
    home.environment |= {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "m"}


def _cline(home: Home, url: str, format_: str) -> None:
    provider = {"provider": "openai-compatible", "apiKey": "none", "model": "m", "baseUrl": f"{url}/v1"}
    settings = {"settings": provider, "updatedAt": "2026-11-28T00:00:00.000Z", "tokenSource": "manual"}
    value = {"version": 1, "lastUsedProvider": "openai-compatible", "providers": {"openai-compatible": settings}}
    home.write(".cline/data/settings/providers.json", value)


def _llm(home: Home, url: str, format_: str) -> None:
    model = f"- model_id: m\n  model_name: m\n  api_base: {url}/v1\n  api_key_name: here\n  supports_tools: true\n"
    home.write("llm/extra-openai-models.yaml", model)
    home.write("llm/keys.json", {"here": "none"})
    home.environment["LLM_USER_PATH"] = str(home.path / "llm")


def _aider(home: Home, url: str, format_: str) -> None:
    home.environment |= {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "none"}
    asked = {"stream_options": {"include_usage": True}}  # which it does not ask for by itself
    home.write(".aider.model.settings.yml", [{"name": "openai/m", "extra_params": asked}])


def _always(*words: str) -> Callable[[Home], Sequence[Any]]:
    return lambda _home: words


CLIENTS = {
    "claude": Client(
        "node_modules/.bin/claude", ("messages",), ("Bash", {"command": "echo hi", "description": "Says hi."}),
        _claude, _claude_turn, _always("--continue"), _always("--continue", "--fork-session"), "/compact",
        ("Agent", {"description": "Says it", "prompt": "{prompt}", "subagent_type": "general-purpose"}),
        files=".claude/projects",
    ),
    "codex": Client(
        "node_modules/.bin/codex", ("open_responses",), ("exec_command", {"cmd": "echo hi"}), _codex, _codex_turn,
        _always("resume", "--last"), lambda home: ("fork", home.newest(".codex/sessions/**/*.jsonl").stem[-36:]), "",
        ("multi_agent_v1.spawn_agent", {"message": "{prompt}"}), "multi_agent_v1.wait_agent",
        ("--model", "m"),  # of which it knows nothing: others have these tools only once they have searched for them
        ".codex/sessions",
    ),
    "opencode": Client(
        "node_modules/.bin/opencode", ("chat_completion", "open_responses", "messages"),
        ("bash", {"command": "echo hi", "description": "Says hi."}), _opencode,
        lambda prompt, more: ["run", "--auto", "--format", "json", *more, prompt], _always("--continue"),
        _always("--continue", "--fork"), "",
        ("task", {"description": "Says it", "prompt": "{prompt}", "subagent_type": "general"}),
        files=".local/share/opencode/opencode.db",
    ),
    "pi": Client(
        "node_modules/.bin/pi", ("open_responses", "chat_completion", "messages"), ("bash", {"command": "echo hi"}),
        _pi, lambda prompt, more: ["--mode", "json", "-p", "--provider", "here", "--model", "m", *more, prompt],
        _always("--continue"), lambda home: ("--fork", home.newest(".pi/agent/sessions/*/*.jsonl")), "",
        files=".pi/agent/sessions", nameless=frozenset({"chat_completion", "messages"}),
        in_all_formats=frozenset({"resumed", "forked", "compacted", "twins", "error", "broken"}),
    ),
    "gemini": Client(
        "node_modules/.bin/gemini", ("gemini",), ("run_shell_command", {"command": "echo hi"}), _gemini,
        lambda prompt, more: ["--yolo", "--output-format", "json", *more, "-p", prompt], _always("--resume", "latest"),
        agent=("invoke_agent", {"agent_name": "generalist", "prompt": "{prompt}"}), files=".gemini/tmp",
        lacks=frozenset({"broken"}),  # it ends then
    ),
    "qwen": Client(
        "node_modules/.bin/qwen", ("chat_completion",),
        ("run_shell_command", {"command": "echo hi", "is_background": False}), _qwen,
        lambda prompt, more: ["--yolo", "--output-format", "json", *more, "-p", prompt], _always("--continue"),
        compact="",
        agent=("agent", {"description": "Says it", "prompt": "{prompt}", "subagent_type": "general-purpose"}),
        files=".qwen/projects",
    ),
    "cline": Client(
        "node_modules/.bin/cline", ("chat_completion",), ("run_commands", {"commands": ["echo hi"]}), _cline,
        lambda prompt, more: ["--json", *more, prompt],
        agent=("spawn_agent", {"systemPrompt": "Be brief.", "task": "{prompt}"}), files=".cline/data/sessions",
    ),
    "llm": Client(
        "llm/bin/llm", ("chat_completion",), ("shell", {"command": "echo hi"}), _llm,
        lambda prompt, more: ["prompt", "-m", "m", "--functions", FUNCTION, *more, prompt], _always("--continue"),
        files="llm/logs.db", lacks=frozenset({"broken", "twins"}),  # two at once may find its database locked
    ),
    "aider": Client(
        "aider-chat/bin/aider", ("chat_completion",), ("none", {}), _aider,
        lambda prompt, more: [
            "--model", "openai/m", "--yes-always", "--no-git", "--no-check-update", "--no-analytics",
            "--no-show-model-warnings", "--no-pretty", "--no-gitignore", *more, "--message", prompt,
        ],
        _always("--restore-chat-history"), lacks=frozenset({"twins"}),
    ),
}  # fmt: skip
# pi with a setting by which it also names its sessions where it does not by itself
CLIENTS["pi-named"] = replace(
    CLIENTS["pi"], formats=("chat_completion", "messages"), setup=partial(_pi, is_named=True), nameless=frozenset(),
    in_all_formats=frozenset({"resumed", "forked"}),
)  # fmt: skip
