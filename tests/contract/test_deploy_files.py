"""The deploy files, checked without a container engine."""

import configparser
import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringback.cli.output import EXIT_NOT_DONE, TRY_AGAIN
from ringback.domain.roles import Role
from ringback.server import EXIT_SECONDS
from ringback.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "scripts" / "deploy"
FILES = [
    "Dockerfile",
    "compose.env",
    "compose.yaml",
    "compose.postgres.yaml",
    "nginx.conf",
    "nginx-site.conf",
    "Caddyfile",
    "haproxy.cfg",
    "ringback.service",
    "chart/values.yaml",
    "chart/templates/deployments.yaml",
]
CHECK_SECONDS = 600.0
"""Ends a hang. The first run installs Helm and the schemas."""
PRE_STOP_SECONDS = 5


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


def services(file: str) -> Mapping[str, Any]:
    return yaml.safe_load((DEPLOY / file).read_text(encoding="utf-8"))["services"]


@pytest.fixture
def compose() -> Mapping[str, Any]:
    return services("compose.yaml")["ringback"]


@pytest.fixture
def cluster() -> Mapping[str, Any]:
    return services("compose.postgres.yaml")


@pytest.fixture
def values() -> Mapping[str, Any]:
    return yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text(encoding="utf-8"))


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


def test_the_documented_docker_run_has_every_setting_that_the_service_requires(last_stage: dict[str, str]) -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (documented,) = re.findall(r"^#\s+docker run (.*)$", text, flags=re.MULTILINE)
    words = shlex.split(documented)
    given = [words[index + 1] for index, word in enumerate(words) if word == "-e"]
    variables = dict(pair.split("=", 1) for pair in [*given, *last_stage["ENV"].split()])
    host = json.loads(last_stage["CMD"])[-1]

    Settings(host=host, **{name.removeprefix("RINGBACK_").lower(): value for name, value in variables.items()})  # pyright: ignore[reportArgumentType] - as text, like from the environment


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


def test_the_nodes_of_the_cluster_have_no_right_that_the_single_service_does_not_have(
    compose: Mapping[str, Any], cluster: Mapping[str, Any]
) -> None:
    limits = ("read_only", "cap_drop", "security_opt", "mem_limit", "pids_limit", "stop_grace_period", "init", "build")
    expected = {name: compose[name] for name in limits}
    nodes = [service for name, service in cluster.items() if name.startswith("ringback-")]

    assert [{name: node[name] for name in limits} for node in nodes] == [expected, expected]
    assert all("ports" not in node for node in nodes)
    assert [port for service in cluster.values() for port in service.get("ports", ())] == ["127.0.0.1:8090:8080"]


@pytest.mark.parametrize("file", ["compose.yaml", "compose.postgres.yaml"])
def test_what_the_operator_writes_into_ringback_env_counts(file: str) -> None:
    """In Compose, `environment` counts more than env files, and a later env file more than an earlier one."""
    for name, service in services(file).items():
        if not name.startswith("ringback"):
            continue
        defaults, operators = (each["path"] for each in service["env_file"])
        assert (DEPLOY / defaults).is_file()
        assert operators.endswith("./ringback.env}")
        # Required from the shell: the container of the database needs one, and no file of the repository has the other.
        assert service.get("environment", {}).keys() <= {"RINGBACK_DATABASE_URL", "RINGBACK_SECRET_KEYS"}


@pytest.mark.parametrize("file", ["compose.yaml", "compose.postgres.yaml"])
def test_a_missing_file_of_upstreams_is_said_by_compose_and_does_not_become_a_folder(file: str) -> None:
    mounts = [each for service in services(file).values() for each in service["volumes"] if "mcp.json" in str(each)]

    assert mounts
    assert [mount["bind"] for mount in mounts] == [{"create_host_path": False}] * len(mounts)


def test_nginx_passes_requests_to_every_node_of_the_cluster(cluster: Mapping[str, Any]) -> None:
    servers = re.findall(r"^\s+server (\S+):8090 ", (DEPLOY / "nginx.conf").read_text(encoding="utf-8"), re.MULTILINE)
    assert servers == [name for name in cluster if name.startswith("ringback-")]


def test_nginx_asks_again_for_the_addresses_of_its_nodes(cluster: Mapping[str, Any]) -> None:
    """It asked at its start only: a node that was replaced was lost until the proxy was restarted, too."""
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    nodes = re.findall(r"^\s+server ringback-\d:8090 (.*);", text, re.MULTILINE)
    version = re.fullmatch(r"nginx:(\d+)\.(\d+)\.(\d+)-\w+", cluster["proxy"]["image"])

    assert ["resolve" in node.split() for node in nodes] == [True] * len(nodes)
    assert re.search(r"^\s+resolver 127\.0\.0\.11 ", text, re.MULTILINE), "Docker's"
    assert version is not None
    assert tuple(map(int, version.groups())) >= (1, 27, 3), "the first with `resolve`"


@pytest.mark.parametrize(
    ("name", "read_pattern", "body_pattern"),
    [
        ("nginx.conf", r"proxy_read_timeout (\d+)s;", r"max_body_size (\d+)m;"),
        ("nginx-site.conf", r"proxy_read_timeout (\d+)s;", r"max_body_size (\d+)m;"),
        ("haproxy.cfg", r"timeout server (\d+)s", None),
        ("Caddyfile", None, r"max_size (\d+)MiB"),
    ],
)
def test_a_proxy_waits_longer_and_takes_more_than_the_service(
    name: str, read_pattern: str | None, body_pattern: str | None
) -> None:
    """Caddy has no limit for a silent response, and HAProxy none for a body."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    read_timeouts = [int(found) for found in re.findall(read_pattern or "$^", text)]
    body_megabytes = {int(found) for found in re.findall(body_pattern or "$^", text)}
    longest_wait = next(
        bound.le for bound in Settings.model_fields["wait_seconds_max"].metadata if hasattr(bound, "le")
    )
    assert all(timeout > longest_wait for timeout in read_timeouts)
    assert {megabytes * 1024 * 1024 for megabytes in body_megabytes} <= {
        Settings.model_fields["request_bytes_max"].default
    }
    assert read_timeouts or body_megabytes


def test_the_chart_knows_the_roles_of_the_service(values: Mapping[str, Any]) -> None:
    schema = json.loads((DEPLOY / "chart" / "values.schema.json").read_text(encoding="utf-8"))
    pool = schema["properties"]["pools"]["items"]["properties"]
    required = re.findall(r"range list (.*) }}", (DEPLOY / "chart/templates/config.yaml").read_text(encoding="utf-8"))
    roles = [str(role) for role in Role]

    assert pool["roles"]["items"]["enum"] == roles
    assert values["pools"][0]["roles"] == roles
    assert [shlex.split(names) for names in required] == [roles]


def test_the_chart_installs_the_version_of_the_package() -> None:
    chart = yaml.safe_load((DEPLOY / "chart" / "Chart.yaml").read_text(encoding="utf-8"))
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert chart["appVersion"] == version


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


def test_every_deployment_leaves_time_to_drain(
    unit: configparser.SectionProxy, compose: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    assert unit["KillMode"] == "mixed"
    end_seconds = Settings.model_fields["drain_seconds"].default + EXIT_SECONDS
    assert int(unit["TimeoutStopSec"]) > end_seconds
    assert int(compose["stop_grace_period"].removesuffix("s")) > end_seconds
    assert values["terminationGracePeriodSeconds"] > end_seconds + PRE_STOP_SECONDS


def test_systemd_restarts_the_service_unless_an_operator_must_act(unit: configparser.SectionProxy) -> None:
    assert unit["Restart"] == "on-failure"
    assert unit["RestartPreventExitStatus"].split() == [str(EXIT_NOT_DONE)]


def test_systemd_reloads_the_upstreams_as_the_page_for_operators_says(unit: configparser.SectionProxy) -> None:
    assert unit.get("ExecReload") == "/bin/kill -HUP $MAINPID"
    assert unit.get("RestartForceExitStatus") == "SIGHUP"  # in its first seconds a process does not handle the signal
    assert "systemctl reload ringback" in (DEPLOY / "OPERATIONS.md").read_text(encoding="utf-8")
    assert EXIT_NOT_DONE != TRY_AGAIN


@pytest.mark.parametrize("name", FILES)
def test_deploy_files_name_only_settings_that_exist(name: str) -> None:
    known = {f"RINGBACK_{field.upper()}" for field in Settings.model_fields}
    named = set(re.findall(r"RINGBACK_[A-Z_]+", (DEPLOY / name).read_text(encoding="utf-8")))
    assert named - known - {"RINGBACK_MCP_JSON", "RINGBACK_ENV_FILE"} == set()


def test_helm_kubernetes_compose_systemd_and_nginx_accept_the_files(*, deep: bool) -> None:
    """In a deep run only: Helm and the schemas are 350 MB."""
    if not deep:
        return
    run = subprocess.run(
        [ROOT / "scripts" / "check_deploy"], capture_output=True, text=True, check=False, timeout=CHECK_SECONDS
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_each_alert_has_a_test_in_which_it_is_raised() -> None:
    """`promtool test rules` runs these tests, where it is installed."""
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text("utf-8"))["groups"][0]["rules"]
    tests = yaml.safe_load((DEPLOY.parent / "deploy_checks" / "alerts.test.yaml").read_text("utf-8"))["tests"]
    raised = {each["alertname"] for test in tests for each in test["alert_rule_test"] if each["exp_alerts"]}

    assert raised == {rule["alert"] for rule in rules}
