"""The metrics in OPERATIONS.md, in the alert rules and in the dashboard of Grafana are those of the service."""

import json
import re
from itertools import combinations
from typing import Any, Final

import pytest
import yaml

from tests.support.metrics import build_all_families
from tests.support.operations_page import PAGE

RULES: Final[list[dict[str, Any]]] = [
    rule
    for group in yaml.safe_load((PAGE.parent / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD: Final[dict[str, Any]] = json.loads((PAGE.parent / "grafana.json").read_text(encoding="utf-8"))
PANELS: Final[list[dict[str, Any]]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SCRAPE_METRIC: Final = "up"
"""Prometheus makes it itself, for each target."""


def exposed() -> dict[str, set[str]]:
    """The names of all samples with their labels."""
    found: dict[str, set[str]] = {}
    for family in build_all_families():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def base_name(sample: str) -> str:
    """A histogram is one metric in the table, without the suffixes of its samples."""
    return re.sub(r"_seconds_(bucket|count|sum)$", "_seconds", sample)


def test_the_table_has_every_metric_with_its_labels_and_no_other() -> None:
    rows = re.findall(r"^\| (`ringback_.*?) \| (database|node) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"`(ringback_[a-z_]+)(?:\{([a-z,]+)\})?`", " ".join(names for names, _ in rows))

    expected = {base_name(name): labels - {"le"} for name, labels in exposed().items()}
    assert {name: set(labels.split(",")) if labels else set[str]() for name, labels in named} == expected


def test_the_table_says_of_each_metric_what_its_help_text_says() -> None:
    rows = re.findall(r"^\| (`ringback_.*?) \| (database|node) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    place_of = {name: place for names, place in rows for name in re.findall(r"ringback_[a-z_]+", names)}

    for family in build_all_families():
        (name, *_) = {base_name(sample.name) for sample in family.samples}
        assert ("node" in family.documentation) is (place_of[name] == "node"), name


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_names_metrics_labels_and_values_that_exist(rule: dict[str, Any]) -> None:
    check_expression(rule["expr"])


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_panel_names_metrics_labels_and_values_that_exist_and_says_what_it_shows(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        check_expression(re.sub(r',?\w+=~?"\$\w+",?', "", target["expr"]))
        assert 'job="$job"' in target["expr"]
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert shown <= set(re.findall(r"\w+", target["expr"])) | {"instance", "upstream", "state"}
    assert panel["description"].endswith(".")


def test_the_panels_have_ids_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    squares = [
        {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        for at in (panel["gridPos"] for panel in panels)
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert not any(one & other for one, other in combinations(squares, 2))
    assert max(x for square in squares for x, _ in square) < 24


def check_expression(expression: str) -> None:
    """The metrics, the labels and the values in it are the service's."""
    samples = {sample.name: sample.labels for family in build_all_families() for sample in family.samples}
    values = {
        (sample.name, label, value)
        for family in build_all_families()
        for sample in family.samples
        for label, value in sample.labels.items()
    }
    names = set(re.findall(r"\b(?:ringback_[a-z_]+|up)\b", expression)) - {SCRAPE_METRIC}
    assert names <= samples.keys()
    for name, selector in re.findall(r"(ringback_[a-z_]+)\{([^}]*)\}", expression):
        for label, wanted in re.findall(r'(\w+)[=!]=?~?"([^"]*)"', selector):
            assert all((name, label, value) in values for value in wanted.split("|")), (label, wanted)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_happens_and_which_section_says_what_to_do(rule: dict[str, Any]) -> None:
    headings = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {f"OPERATIONS.md#{heading.lower().replace(' ', '-')}" for heading in headings}

    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook"] in anchors
