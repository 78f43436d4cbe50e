"""UIMessages with parts of every type, least and full, that are made of the AI SDK's own schemas: versions 5, 6 and 7.

The packages are fetched from npm. Each value must be equal after it was stored and rendered, and the package must
validate it, and make the same messages for models of it, as before.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.formats import ui_samples as samples
from threadkeep import Store

Json = dict[str, Any]
VERSIONS = ["ai@5.0.277", "ai@6.0.326", "ai@7.0.173"]
# how many types of parts each version has, with each state of a tool
TYPES = {"ai@5.0.277": 18, "ai@6.0.326": 21, "ai@7.0.173": 24}
SCHEMAS = """
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
const dist = new URL('node_modules/ai/dist/', import.meta.url).pathname;
const from = dist + (existsSync(dist + 'index.mjs') ? 'index.mjs' : 'index.js');
const parts = /const (static|data|dynamicTool|tool)PartSchema = /g; // those of version 7, whose whole is no JSON schema
const text = readFileSync(from, 'utf8').replace(parts, 'const $1PartSchema = (globalThis.parts ??= {}).$1 = ');
writeFileSync(dist + 'with-schema.mjs', text + '\\nexport { uiMessagesSchema };\\n');
let { uiMessagesSchema: schema } = await import(dist + 'with-schema.mjs');
while (typeof schema === 'function') schema = schema();
const whole = await schema.jsonSchema;
const { toJSONSchema } = createRequire(from)('zod/v4');
const options = { unrepresentable: 'any', io: 'input' };
process.stdout.write(JSON.stringify(globalThis.parts
  ? Object.values(globalThis.parts).map(part => toJSONSchema(part, options))
  : [whole.items.properties.parts.items]));
"""
CHECK = """
import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { convertToModelMessages, safeValidateUIMessages } from 'ai';
globalThis.AI_SDK_LOG_WARNINGS = false;
const found = [];
for (const [before, after] of JSON.parse(readFileSync(0, 'utf8'))) {
  const valid = await Promise.all([before, after].map(messages => safeValidateUIMessages({ messages })));
  const made = await Promise.all([before, after].map(async messages => convertToModelMessages(messages)));
  found.push([...valid.map(one => one.success), isDeepStrictEqual(made[0], made[1])]);
}
process.stdout.write(JSON.stringify(found));
"""


@pytest.fixture(scope="module", params=VERSIONS)
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A version of the package, and where it is."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("ai")
    npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), request.param, "zod@4"]
    subprocess.run(npm, check=True, timeout=300)
    (folder / "schemas.mjs").write_text(SCHEMAS)
    (folder / "check.mjs").write_text(CHECK)
    return request.param, folder


def said_by(folder: Path, script: str, given: Any = None) -> Any:
    node = ["node", "--no-warnings", str(folder / script)]
    answer = subprocess.run(node, input=json.dumps(given), capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


# Values of a schema

TEXTS = {"mediaType": "image/png", "url": "https://example.org/a.png"}
ANYTHING: Json = {"city": "Kiel", "list": [1, 2.5, None, {"deep": True}]}
UNTYPED: dict[str, Any] = {  # what version 7 checks beside the schema
    "providerMetadata": samples.META, "callProviderMetadata": samples.META, "resultProviderMetadata": samples.META,
    "toolMetadata": samples.META, "citations": samples.CITED["citations"], "parts": [{"type": "text", "text": "Hi"}],
}  # fmt: skip


def alternatives(schema: Json) -> Iterator[Json]:
    inner = schema.get("anyOf") or schema.get("oneOf")
    if inner is None:
        yield schema
    for one in inner or ():
        yield from alternatives(one)


def values(schema: Json, name: str) -> list[Any]:
    """Values of a schema: of an object the least and the full one, and the least with each key that it may have."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    if "anyOf" in schema or "oneOf" in schema:
        return [value for one in alternatives(schema) for value in values(one, name)]
    kind = schema.get("type")
    if kind == "string":
        beginning = schema.get("pattern", "").removeprefix("^").removesuffix(".*")
        return [f"{beginning}look" if beginning else TEXTS.get(name, f"some {name}"), *([] if beginning else [""])]
    if kind == "boolean":
        return [True, False]
    if kind == "array":
        return [UNTYPED[name]] if name in UNTYPED else [[], [ANYTHING]]
    if "properties" not in schema:
        return [UNTYPED.get(name, {"openai": "file-1"} if name == "providerReference" else ANYTHING)]
    may = {key: values(one, key) for key, one in schema["properties"].items() if one.get("not") != {}}
    least = {key: may[key][0] for key in schema.get("required", ())}
    full = {key: found[0] for key, found in may.items()}
    others = [{**least, key: value} for key, found in may.items() for value in found if key != "url" or value]
    return [least, full, *others]


def test_values_of_every_type_come_back_equal_and_serve_models_alike(package: tuple[str, Path]) -> None:
    version, folder = package
    types = [one for schema in said_by(folder, "schemas.mjs") for one in alternatives(schema)]
    assert len(types) == TYPES[version]
    named = {"toolCallId": "c1"}  # which is not empty
    parts = [part | {key: named[key] for key in named if key in part} for kind in types for part in values(kind, "")]
    asked = samples.user({"type": "text", "text": "Hi"})
    chats = [[asked, samples.assistant(part)] for part in parts]
    said = [part for part in parts if part["type"] in ("text", "file")]
    chats += [[samples.user(part, metadata=ANYTHING), samples.assistant(part, part, metadata={})] for part in said]
    with Store("sqlite://") as store:
        pairs = [(chat, store.import_request({"messages": chat}, "ui_messages")) for chat in chats]
        rendered = [(chat, stored.request_payload("ui_messages")["messages"]) for chat, stored in pairs]
    assert [after for before, after in rendered if after != before] == []
    told = said_by(folder, "check.mjs", rendered)
    assert [chat for chat, (is_valid, *_) in zip(chats, told, strict=True) if not is_valid] == []
    assert [chat for chat, one in zip(chats, told, strict=True) if one != [True, True, True]] == []
