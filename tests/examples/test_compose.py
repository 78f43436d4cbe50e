"""The compose file can be read, and starts what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.runs import Cli

FILE = Path(__file__).parents[2] / "examples/compose.yaml"


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load(FILE.read_text())


def test_two_processes_stand_behind_one_port(compose: Any) -> None:
    services = compose["services"]
    assert set(services) == {"database", "schema", "server", "proxy"}
    assert services["server"]["deploy"]["replicas"] == 2
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert "reverse_proxy" in compose["configs"]["caddy"]["content"]


def test_what_services_need_is_there(compose: Any) -> None:
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        assert {one["source"] for one in service.get("configs", ())} <= set(compose["configs"])
        named = (volume.partition(":")[0] for volume in service.get("volumes", ()))
        assert set(named) <= set(compose["volumes"])
    seconds = services["server"]["stop_grace_period"]
    assert int(re.sub(r"\D", "", seconds)) > 30  # for which the server waits for requests


def test_images_and_passwords_come_from_elsewhere(compose: Any) -> None:
    for service in compose["services"].values():
        assert "/" not in service.get("image", "")
    assert "${POSTGRES_PASSWORD:?" in compose["services"]["database"]["environment"]["POSTGRES_PASSWORD"]


@pytest.mark.parametrize("service", ["schema", "server"])
def test_the_commands_have_these_options(compose: Any, service: str) -> None:
    cli = Cli("sqlite://")
    words = compose["services"][service]["command"]
    options = {word.partition("=")[0] for word in words if word.startswith("-")}
    shown = cli(*(word for word in words if not word.startswith("-")), "--help").out
    assert {option for option in options if option not in shown} == set()
