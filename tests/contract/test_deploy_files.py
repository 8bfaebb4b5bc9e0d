"""The deploy files, checked without a container engine."""

import configparser
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringback.cli.output import EXIT_NOT_DONE, TRY_AGAIN
from ringback.server import EXIT_SECONDS
from ringback.settings import Settings

DEPLOY = Path(__file__).parents[2] / "scripts" / "deploy"
FILES = ["Dockerfile", "compose.yaml", "ringback.service"]


@pytest.fixture
def dockerfile() -> list[tuple[str, str]]:
    """The instructions and their arguments, with continued lines joined and without comments."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(head, rest.strip()) for head, _, rest in (line.partition(" ") for line in lines)]


@pytest.fixture
def last_stage(dockerfile: list[tuple[str, str]]) -> dict[str, str]:
    """The instructions of the final image; the last one of repeated instructions."""
    start = max(index for index, (head, _) in enumerate(dockerfile) if head == "FROM")
    return dict(dockerfile[start:])


@pytest.fixture
def compose() -> Mapping[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["ringback"]


@pytest.fixture
def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(DEPLOY / "ringback.service", encoding="utf-8")
    return parser["Service"]


def test_every_stage_starts_from_a_pinned_slim_python(dockerfile: list[tuple[str, str]]) -> None:
    bases = [rest for head, rest in dockerfile if head == "FROM"]
    assert len(bases) > 1
    assert [base for base in bases if not re.match(r"python:3\.\d+\.\d+-slim-\w+( AS \w+)?$", base)] == []


def test_nothing_is_fetched_but_by_pip(dockerfile: list[tuple[str, str]]) -> None:
    assert "ADD" not in [head for head, _ in dockerfile]
    assert [
        rest for head, rest in dockerfile if head == "RUN" and re.search(r"\b(curl|wget|apt-get|sudo)\b", rest)
    ] == []


def test_the_image_runs_as_a_number_that_is_not_root(last_stage: dict[str, str]) -> None:
    user, _, group = last_stage["USER"].partition(":")
    assert int(user) > 0
    assert int(group) > 0


def test_the_image_starts_the_service_directly_so_that_it_receives_sigterm(last_stage: dict[str, str]) -> None:
    assert json.loads(last_stage["ENTRYPOINT"]) == ["ringback"]
    assert json.loads(last_stage["CMD"]) == ["serve", "--host", "0.0.0.0"]


def test_the_image_has_a_health_check(last_stage: dict[str, str]) -> None:
    options, _, command = last_stage["HEALTHCHECK"].partition("CMD")
    python, flag, program = json.loads(command)
    compile(program, "HEALTHCHECK", "exec")

    assert (python, flag) == ("python", "-c")
    assert "/healthz" in program
    assert "--timeout=" in options


def test_the_database_lies_on_the_volume(last_stage: dict[str, str]) -> None:
    assert last_stage["VOLUME"] == "/data"
    assert "RINGBACK_DATABASE_URL=sqlite:////data/" in last_stage["ENV"]


def test_only_copied_files_are_sent_to_the_build(dockerfile: list[tuple[str, str]]) -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {
        name for head, rest in dockerfile if head == "COPY" and "--from" not in rest for name in rest.split()[:-1]
    }

    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def test_compose_takes_every_right_that_is_not_needed(compose: Mapping[str, Any]) -> None:
    assert compose["read_only"] is True
    assert compose["cap_drop"] == ["ALL"]
    assert compose["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in compose
    assert all(port.startswith("127.0.0.1:") for port in compose["ports"])


def test_compose_builds_from_the_top_of_the_repository(compose: Mapping[str, Any]) -> None:
    context = (DEPLOY / compose["build"]["context"]).resolve()
    assert (context / "pyproject.toml").is_file()
    assert (context / compose["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")


def test_systemd_runs_it_without_root_and_without_the_machine(unit: configparser.SectionProxy) -> None:
    wanted = {
        "DynamicUser": "yes",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "PrivateDevices": "yes",
        "UMask": "0077",
        "SystemCallFilter": "@system-service",
    }
    assert {name: unit.get(name) for name in wanted} == wanted


def test_systemd_and_compose_leave_time_to_drain(unit: configparser.SectionProxy, compose: Mapping[str, Any]) -> None:
    assert unit["KillMode"] == "mixed"
    end_seconds = Settings.model_fields["drain_seconds"].default + EXIT_SECONDS
    assert int(unit["TimeoutStopSec"]) > end_seconds
    assert int(compose["stop_grace_period"].removesuffix("s")) > end_seconds


def test_systemd_restarts_the_service_unless_an_operator_must_act(unit: configparser.SectionProxy) -> None:
    assert unit["Restart"] == "on-failure"
    assert unit["RestartPreventExitStatus"].split() == [str(EXIT_NOT_DONE)]
    assert EXIT_NOT_DONE != TRY_AGAIN


@pytest.mark.parametrize("name", FILES)
def test_deploy_files_name_only_settings_that_exist(name: str) -> None:
    known = {f"RINGBACK_{field.upper()}" for field in Settings.model_fields}
    named = set(re.findall(r"RINGBACK_[A-Z_]+", (DEPLOY / name).read_text(encoding="utf-8")))
    assert named - known - {"RINGBACK_MCP_JSON"} == set()
