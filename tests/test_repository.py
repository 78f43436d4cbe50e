"""What strangers look for in a repository: workflows, forms and settings that other programs read."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
YAML = sorted(path for folder in (".github", ".devcontainer") for path in ROOT.joinpath(folder).rglob("*.yml"))
WORKFLOWS = [path for path in YAML if path.parent.name == "workflows"]
MAKE = re.compile(r"\bmake ((?:[a-z][a-z0-9-]*)(?: [a-z][a-z0-9-]*)*)")
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", ROOT.joinpath("Makefile").read_text(), re.MULTILINE))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", [*YAML, ROOT / ".pre-commit-config.yaml"], ids=lambda path: path.name)
def test_yaml_is_read(path: Path) -> None:
    assert isinstance(read(path), dict)


def test_workflows_and_guides_name_targets_of_make() -> None:
    texts = {path: "\n".join(step.get("run", "") for step in steps(path)) for path in WORKFLOWS}
    texts |= {path: path.read_text() for path in (ROOT / "CONTRIBUTING.md", ROOT / ".devcontainer/devcontainer.json")}
    named = {
        (path.name, name) for path, text in texts.items() for names in MAKE.findall(text) for name in names.split()
    }
    assert {("ci.yml", "test"), ("ci.yml", "lint"), ("release.yml", "build")} <= named
    assert {(path, name) for path, name in named if name not in TARGETS} == set()


def test_scripts_of_workflows_exist() -> None:
    scripts = [step["run"] for path in WORKFLOWS for step in steps(path) if step.get("run", "").startswith(".")]
    assert scripts
    assert [name for name in scripts if not ROOT.joinpath(name.split()[0]).is_file()] == []


def test_jobs_are_allowed_little() -> None:
    """Only the upload may ask for an identity, and it stores no token."""
    jobs = {(path.name, name): job for path in WORKFLOWS for name, job in read(path)["jobs"].items()}
    assert {name: job["permissions"] for name, job in jobs.items() if "permissions" in job} == {
        ("release.yml", "publish"): {"id-token": "write"}
    }
    assert all(read(path)["permissions"] == {"contents": "read"} for path in WORKFLOWS)
    assert "secrets." not in "".join(path.read_text() for path in WORKFLOWS)


def test_pythons_of_workflows_are_those_of_the_package() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
    named = {text.rsplit(" ", 1)[-1] for text in project["classifiers"] if re.search(r":: 3\.\d+$", text)}
    jobs = {name: job for path in WORKFLOWS for name, job in read(path)["jobs"].items()}
    assert set(jobs["install"]["strategy"]["matrix"]["python"]) == named
    quick = jobs["quick"]["strategy"]["matrix"]["python"]
    assert len(quick) == 3
    assert {min(named, key=_version), max(named, key=_version)} < set(quick) <= named


def _version(text: str) -> list[int]:
    return [int(number) for number in text.split(".")]


def test_the_devcontainer_has_both_databases() -> None:
    container = json.loads(ROOT.joinpath(".devcontainer/devcontainer.json").read_text())
    services = read(ROOT / ".devcontainer" / container["dockerComposeFile"])["services"]
    assert container["service"] in services
    assert {"THREADKEEP_TEST_POSTGRES", "THREADKEEP_TEST_MARIADB"} <= set(services["workspace"]["environment"])
    assert {service["image"].partition(":")[0] for service in services.values()} == {"python", "postgres", "mariadb"}


def test_guides_are_short() -> None:
    assert len(ROOT.joinpath("CONTRIBUTING.md").read_text().splitlines()) <= 25
    assert ROOT.joinpath("SECURITY.md").is_file()
