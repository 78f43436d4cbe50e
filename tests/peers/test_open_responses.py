"""The server, asked by a tool that checks what it answers against the schema of Open Responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import llm_comply.specs
import pytest
from llm_comply.config import ComplianceConfig
from llm_comply.result import TestStatus as Status
from llm_comply.runner import TestRunner as Runner
from llm_comply.schema import SpecLoader
from llm_comply.tests.open_responses import OPEN_RESPONSES_TESTS as CASES

from tests.server.scripts import script
from tests.server.servers import running
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, Upstream, app

SPEC = Path(llm_comply.specs.__file__).with_name("openresponses.json")
FEWEST: Final = 13
FORMATS: Any = ("chat_completion", "messages", "open_responses", "gemini", "converse")


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver is deprecated:DeprecationWarning")  # it is llm-comply's
@pytest.mark.parametrize("format_", FORMATS)
def test_what_open_responses_requires_over_each_format(tmp_path: Path, format_: Any) -> None:
    async def ask(payload: dict[str, Any], model: str) -> AsyncGenerator[Any]:
        for event in script(format_, ["Hello ", "there."], calls="tools" in payload or "toolConfig" in payload):
            yield event

    url = f"sqlite:///{tmp_path}/chat.db"
    Store(url).close()
    store = AsyncStore(url)
    application = app(store, auth=lambda _: Owner(), upstreams={"*": Upstream("scripted", format_, ask)})
    with running(application, store) as address:
        config = ComplianceConfig(base_url=f"{address}/v1", api_key="any", model="gpt-5-scripted")
        results = Runner(config, CASES, SpecLoader(str(SPEC))).run_all().results
    assert {one.id: one.errors for one in results if one.status != Status.PASSED} == {}
    assert len(results) == len(CASES) >= FEWEST
