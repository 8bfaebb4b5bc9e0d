"""The Helm chart, by Helm itself: lint, render with several values, and the schemas of Kubernetes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import helm_python
import kubernetes_validate
import yaml

from scripts.deploy_checks.result import DEPLOY, Result, judge

CHART: Final = DEPLOY / "chart"
KUBERNETES: Final = ("1.30", "1.37")
"""The oldest version that Chart.yaml allows, and the newest whose schemas the package has."""
WARNING: Final = 2
"""Helm's severity of a warning; an error's is 3."""
POOLS: Final = [
    {"name": "api", "roles": ["api"], "replicas": 3},
    {"name": "work", "roles": ["runner", "dispatcher", "janitor"], "replicas": 2, "resources": {"limits": {"cpu": 1}}},
]
VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "defaults": {},
    "two pools behind an ingress": {
        "pools": POOLS,
        "ingress": {"enabled": True, "className": "nginx", "host": "ringback.example.com", "tlsSecret": "certificate"},
        "mcpServers": {"docs": {"type": "http", "url": "https://docs.example.com/mcp", "headers": {"X-A": '"${A}"'}}},
        "settings": {"RINGBACK_DRAIN_SECONDS": 20, "RINGBACK_CALLBACK_HTTP": False},
        "extraEnvFrom": [{"secretRef": {"name": "tokens"}}],
        "imagePullSecrets": [{"name": "registry"}],
    },
}
SETTINGS: Final[Mapping[str, tuple[Any, str]]] = {
    "RINGBACK_REQUEST_BYTES_MAX": (8_388_608, "8388608"),
    "RINGBACK_QUOTA_RESULT_BYTES": (17_179_869_184, "17179869184"),
    "RINGBACK_INLINE_WAIT_SECONDS": (0.5, "0.5"),
    "RINGBACK_CALLBACK_HTTP": (False, "false"),
    "RINGBACK_CALLBACK_ALLOWLIST": ('https://a.example/"b"', 'https://a.example/"b"'),
}
"""Values of settings, and what the environment must have of them. Helm holds a number of a values file as a float."""
REFUSED: Final[Mapping[str, Mapping[str, Any]]] = {
    "a role that no pool has": {"pools": POOLS[:1]},
    "a role that does not exist": {"pools": [{"name": "a", "roles": ["sender"], "replicas": 1}]},
    "a value that does not exist": {"replicas": 3},
}


def check_chart() -> Result:
    faults = [*_lint(), *_validate_rendered(), *_compare_settings(), *_render_refused()]
    versions = " and ".join(KUBERNETES)
    return judge(faults, f"Helm {helm_python.helm_sdk_version()} lints it; valid for Kubernetes {versions}")


def _lint() -> Iterator[str]:
    for name, values in VALUES.items():
        report = helm_python.lint(CHART, dict(values), strict=True)
        yield from (f"lint, {name}: {fault}" for fault in report["errors"] or ())
        warnings = (message for message in report["messages"] or () if message["severity"] >= WARNING)
        yield from (f"lint, {name}: {message}" for message in warnings)


def _validate_rendered() -> Iterator[str]:
    for name, values in VALUES.items():
        for document in _render(values):
            for version in KUBERNETES:
                try:
                    kubernetes_validate.validate(document, version, strict=True)
                except kubernetes_validate.ValidationError as fault:
                    yield f"{name}, {document['kind']}, Kubernetes {version}: {fault.message}"


def _compare_settings() -> Iterator[str]:
    documents = _render({"settings": {name: value for name, (value, _) in SETTINGS.items()}})
    deployment = next(document for document in documents if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    rendered = {each["name"]: each.get("value") for each in container["env"]}
    for name, (_, expected) in SETTINGS.items():
        if rendered[name] != expected:
            yield f"{name} is {rendered[name]!r} in the environment, and should be {expected!r}"


def _render_refused() -> Iterator[str]:
    for name, values in REFUSED.items():
        try:
            _render(values)
        except helm_python.HelmError:
            continue
        yield f"{name} is rendered, although it should be refused"


def _render(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(chart.merge_values(dict(values)))
        manifests = chart.render(dict(values), name="demo", namespace="test")
    texts = (text for path, text in manifests.items() if path.endswith(".yaml"))
    return [document for text in texts for document in yaml.safe_load_all(text) if document]
