"""The compose file can be read, and starts what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.runs import Cli

FILE = Path(__file__).parents[2] / "examples/compose.yaml"
IMAGE = (Path(__file__).parents[2] / "Dockerfile").read_text()


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


def test_images_are_official_ones_of_a_minor_version(compose: Any) -> None:
    images = [service["image"] for service in compose["services"].values() if "image" in service]
    for image in [*images, *re.findall(r"^FROM (\S+)", IMAGE, re.MULTILINE)]:
        assert re.fullmatch(r"[a-z]+:\d+\.\d+(-[a-z]+)?", image), image


def test_packages_in_the_image_are_pinned() -> None:
    installs = re.findall(r"pip install[^&\n]*", IMAGE)
    assert installs
    assert [line for line in installs if "-c /src/constraints.txt" not in line] == []


def test_the_image_has_what_is_installed_and_nothing_of_this_machine(compose: Any) -> None:
    ignored, *rules = FILE.parent.parent.joinpath(".dockerignore").read_text().splitlines()[1:]
    assert compose["x-threadkeep"]["build"] == {"context": ".."}
    assert ignored == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == {
        "src", "migrations", "constraints.txt", "pyproject.toml", "README.md", "LICENSE",
    }  # fmt: skip


def test_the_image_runs_as_a_user_and_says_whether_it_is_ready() -> None:
    assert [line for line in IMAGE.splitlines() if line.startswith("USER")] == ["USER threadkeep"]
    assert re.search(r"^HEALTHCHECK .*/readyz", IMAGE, re.MULTILINE)


def test_the_port_is_open_on_this_machine_alone(compose: Any) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_a_password_may_have_any_characters(compose: Any) -> None:
    services = compose["services"]
    assert "${POSTGRES_PASSWORD:?" in services["database"]["environment"]["POSTGRES_PASSWORD"]
    for name in ("schema", "server"):
        environment = services[name]["environment"]
        assert "${" not in environment["THREADKEEP_URL"]
        assert environment["PGPASSWORD"] == services["database"]["environment"]["POSTGRES_PASSWORD"]


@pytest.mark.parametrize("service", ["schema", "server"])
def test_the_commands_have_these_options(compose: Any, service: str) -> None:
    cli = Cli("sqlite://")
    words = compose["services"][service]["command"]
    options = {word.partition("=")[0] for word in words if word.startswith("-")}
    shown = cli(*(word for word in words if not word.startswith("-")), "--help").out
    assert {option for option in options if option not in shown} == set()
