"""Mistakes that look plausible: none of them passes in silence in the REST API."""

from __future__ import annotations

from typing import Any, Final

import httpx2

from tests.server.conftest import Bridge
from threadkeep.http import rest_app

MESSAGES: Final = "/api/conversations/{id}/messages"
SPAN: Final = {"since": "2026-02-01", "until": "2026-01-01"}

# method, path, query, body -> status and what the error is about
MISTAKES: dict[str, tuple[str, str, dict[str, str], Any, int, str]] = {
    "part input_img": ("POST", MESSAGES, {}, {"content": [{"type": "input_img"}]}, 400, "content[0].type"),
    "part of a new type": ("POST", MESSAGES, {}, {"content": [{"type": "hologram"}]}, 400, "content[0].type"),
    "path of a picture": (
        "POST", MESSAGES, {}, {"content": [{"type": "input_image", "image_url": "cat.png"}]}, 400, "content[0].url",
    ),
    "picture without a source": ("POST", MESSAGES, {}, {"content": [{"type": "input_image"}]}, 400, "content[0]"),
    "empty text": ("POST", MESSAGES, {}, {"content": ""}, 400, "content"),
    "no parts": ("POST", MESSAGES, {}, {"content": []}, 400, "content"),
    "misspelt content": ("POST", MESSAGES, {}, {"contents": "x"}, 400, "contents"),
    "empty model": ("POST", "/api/conversations", {}, {"model": ""}, 400, "model"),
    "misspelt option": ("POST", "/api/conversations", {}, {"temprature": 1}, 400, "temprature"),
    "misspelt type of a tool": (
        "POST", "/api/conversations", {}, {"tools": [{"type": "functon", "name": "f"}]}, 400, "tools[0].type",
    ),
    "misspelt status": ("PATCH", "/api/conversations/{id}", {}, {"status": "archive"}, 400, "status"),
    "misspelt column": ("GET", "/api/usage", {"by": "modle"}, None, 400, "by"),
    "misspelt filter": ("GET", "/api/usage", {"modle": "m"}, None, 400, "modle"),
    "labels without a name": ("GET", "/api/conversations", {"labels": "web"}, None, 400, "labels"),
    "span that ends before it begins": ("GET", "/api/usage", SPAN, None, 400, "until"),
}  # fmt: skip


def test_plausible_mistakes_are_refused(served: Any) -> None:
    made = rest_app(served._store, auth=served.authenticate)
    transport, headers = Bridge(served.runner, made), {"Authorization": "Bearer ann"}
    api = httpx2.Client(transport=transport, base_url="http://localhost", headers=headers)
    assert api.get("/api/usage", params={"access_token": "ann"}).is_success
    id_ = api.post("/api/conversations", json={}).json()["id"]
    failures = {}
    for mistake, (method, path, query, body, status, param) in MISTAKES.items():
        sent = {"answer": False, **body} if path == MESSAGES else body
        answer = api.request(method, path.replace("{id}", id_), params=query, json=sent)
        found = answer.status_code, answer.json().get("error", {}).get("param")
        if found != (status, param):
            failures[mistake] = answer.text[:300]
    assert failures == {}
