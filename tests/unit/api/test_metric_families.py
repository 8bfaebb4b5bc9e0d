"""The names and help texts of the metrics follow Prometheus' rules, which `promtool check metrics` knows too."""

import re
from datetime import timedelta

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.measurements import OTHER_UPSTREAM, Histogram, Measurements
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.metrics import build_all_families, render_exposition


def test_the_exposition_is_read_by_prometheus_client() -> None:
    read = {family.name for family in text_string_to_metric_families(render_exposition())}
    assert read == {family.name for family in build_all_families()} - {"ringback_build"} | {"ringback_build_info"}


@pytest.mark.parametrize("family", build_all_families(), ids=lambda family: family.name)
def test_a_metric_has_a_name_a_unit_and_a_help_text_by_the_rules_of_promtool(family: Metric) -> None:
    words = family.name.split("_")

    assert re.fullmatch(r"ringback(_[a-z]+)+", family.name)
    assert family.documentation.endswith(".")
    assert not {"gauge", "counter", "histogram", "summary", "total", "count", "sum", "bucket", "info"} & set(words)
    assert not {"milliseconds", "ms", "minutes", "hours", "kilobytes", "percent"} & set(words)
    assert family.type != "histogram" or words[-1] == "seconds"
    assert {"seconds"} & set(words) == set() or words[-1] == "seconds"


@pytest.mark.parametrize("family", build_all_families(), ids=lambda family: family.name)
def test_a_help_text_says_whether_the_metric_is_of_the_node_or_of_the_database(family: Metric) -> None:
    assert ("node" in family.documentation) or ("database" in family.documentation)


def test_no_metric_has_a_label_whose_values_clients_choose() -> None:
    labels = {label for family in build_all_families() for sample in family.samples for label in sample.labels}

    assert labels == {"category", "fault", "intake", "le", "outcome", "state", "status", "upstream", "version"}


def test_a_histogram_counts_into_the_bucket_of_its_upper_bound() -> None:
    histogram = Histogram((1.0, 5.0))

    for seconds in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(seconds)

    assert (histogram.cumulative_counts(), histogram.sum_seconds) == ([2, 3, 4], 12.0)


def test_the_end_of_a_call_counts_for_its_upstream_only_if_that_is_configured_here() -> None:
    measured = Measurements()
    measured.is_configured = {"git"}.__contains__
    ended = {"status": CallStatus.COMPLETED, "outcome": CallOutcome.RESULT, "finished_at": START + timedelta(seconds=3)}

    for upstream in ("git", "chosen-by-a-client-1", "chosen-by-a-client-2"):
        measured.record_end(make_call(upstream=upstream, created_at=START, **ended))

    assert measured.ended_calls == {("git", CallOutcome.RESULT): 1, (OTHER_UPSTREAM, CallOutcome.RESULT): 2}
    assert measured.call_seconds.sum_seconds == 9.0


def test_every_category_and_state_has_a_sample_from_the_start() -> None:
    found = {
        family.name: {tuple(sample.labels.values()) for sample in family.samples} for family in build_all_families()
    }

    assert found["ringback_attempts"] == {(str(category),) for category in AttemptCategory}
    assert found["ringback_ended_deliveries"] == {("delivered",), ("dead",), ("cancelled",)}
