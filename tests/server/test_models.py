"""The list of models: those with an upstream of their own, and what the providers behind patterns list."""

from __future__ import annotations

from collections import Counter
from typing import Any

import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.server.scripts import FORMATS, Scripted
from tests.server.servers import running
from threadkeep.http import Upstream, http_upstream
from threadkeep.server import upstreams as module

pytestmark = pytest.mark.one_database

NAMES = ["claude-sonnet-5", "claude-opus-5", "x" * 300]
OPENAI: Any = {"object": "list", "data": [{"id": name, "object": "model"} for name in NAMES]}
GOOGLE: Any = {"models": [{"name": f"models/{name}"} for name in NAMES]}
# format -> what is asked, and the answer
LISTS: dict[str, tuple[str, Any]] = {
    "open_responses": ("/v1/models", OPENAI),
    "chat_completion": ("/v1/models", OPENAI),
    "messages": ("/v1/models?limit=1000", {**OPENAI, "has_more": False}),
    "gemini": ("/v1beta/models?pageSize=1000", GOOGLE),
    "interactions": ("/v1beta/models?pageSize=1000", GOOGLE),
}


class Lister:
    """A provider that lists its models, and counts how often it was asked for what."""

    def __init__(self) -> None:
        self.asked, self.headers = Counter[str](), dict[str, str]()
        self.body: Any = OPENAI
        self.status = 200
        self.app = Starlette(routes=[Route("/{path:path}", self.answer)])

    async def answer(self, request: Request) -> Response:
        self.asked[request.url.path + (f"?{request.url.query}" if request.url.query else "")] += 1
        self.headers = dict(request.headers)
        return JSONResponse(self.body, self.status)


def listed(client: openai.OpenAI) -> list[tuple[str, str]]:
    return [(model.id, model.owned_by) for model in client.models.list()]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_pattern_lists_what_its_provider_does(served: Any, format_: Any) -> None:
    lister, others = Lister(), Scripted("gemini")
    path, lister.body = LISTS.get(format_, ("", OPENAI))
    with running(lister.app) as url:
        base = f"{url}{path[: path.index('/models')]}" if path else url
        provider = http_upstream("shop", format_, base, key="secret")
        table = {"claude-opus-5": others.upstream, "claude-s*": provider, "claude-*": others.upstream, "*": provider}
        client = served.client(upstreams=table)
        found = [listed(client) for _ in range(2)]
        served.call(provider.close)
    mine = [("claude-sonnet-5", "shop")] if path else []
    assert found == [[("claude-opus-5", others.upstream.name), *mine]] * 2
    assert dict(lister.asked) == ({path: 1} if path else {})
    assert not path or "secret" in str(lister.headers)


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, {"error": "no"}), (404, {}), (200, {"data": 7}), (200, [1]), (200, {"data": [1, {"id": 2}]})],
)
def test_a_provider_that_does_not_list_is_left_out(
    served: Any, status: int, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it does: what it has listed before counts if it fails later."""
    monkeypatch.setattr(module, "LIST_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(module, "LISTED_SECONDS", 0.0)
    lister = Lister()
    with running(lister.app) as url:
        provider = http_upstream("shop", "chat_completion", f"{url}/v1")
        client = served.client(upstreams={"own": provider, "*": provider})
        lister.status, lister.body = status, body
        assert listed(client) == [("own", "shop")]
        lister.status, lister.body = 200, OPENAI
        all_ = [("own", "shop"), ("claude-sonnet-5", "shop"), ("claude-opus-5", "shop")]
        assert listed(client) == all_
        lister.status = 503
        assert listed(client) == all_
        served.call(provider.close)


def test_an_upstream_of_the_application_may_list_its_models(served: Any) -> None:
    one = Scripted("messages")

    async def models() -> list[str]:
        return ["claude-a", "gpt-b", "claude-a"]

    own = Upstream("own", "messages", one.ask, models=models)
    fixed = Upstream("fixed", "messages", one.ask, model="claude-sonnet-5", models=models)
    assert listed(served.client(upstreams={"claude-*": own, "*": fixed})) == [("claude-a", "own")]
