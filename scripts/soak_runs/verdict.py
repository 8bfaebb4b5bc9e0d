"""Compares the measurements of a run with the limits. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scripts.soak_runs.measured_client import MeasuredPhase

RATIO_MAX: Final = 2.0
SLACK_SECONDS: Final = 0.020
"""A p99 may be twice that of the time alone, or this much above it, whichever is more (design §12)."""
HEALTHZ_SECONDS_MAX: Final = 0.100
GROWTH_MIB_MAX: Final = 32.0
"""Memory growth that counts as flat. The first fifth of the time beside the hostile clients fills caches and is left out."""
SETTLING: Final = 0.2

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakMeasurements:
    alone: MeasuredPhase
    beside: MeasuredPhase
    crowd: Mapping[str, Mapping[str, int]]
    stuck: int
    """Calls of hostile clients that did not end within their timeout."""


def count_failures(shown: SoakMeasurements) -> dict[str, int]:
    """The counts that must be zero on every machine."""
    return {
        "lost": shown.alone.lost + shown.beside.lost,
        "refused": shown.alone.refused + shown.beside.refused,
        "wrong": shown.alone.wrong + shown.beside.wrong,
        "unhealthy": shown.alone.unhealthy + shown.beside.unhealthy,
        "stuck": shown.stuck,
        "failed": sum(done.get("failed", 0) + done.get("unanswered", 0) for done in shown.crowd.values()),
    }


def judge_run(shown: SoakMeasurements) -> Json:
    """The last line of `scripts/soak --json`."""
    alone, beside = shown.alone, shown.beside
    growth = rss_growth_mib(beside.rss_mib)
    healthz = max(beside.healthz, default=0.0)
    bearable = is_acceptable(alone.accepts, beside.accepts) and is_acceptable(alone.callbacks, beside.callbacks)
    zeros = count_failures(shown)
    return {
        "ok": bearable and growth <= GROWTH_MIB_MAX and healthz <= HEALTHZ_SECONDS_MAX and not any(zeros.values()),
        "p99_ratio": round(_ratio(alone.callbacks, beside.callbacks), 2),
        "accept_p99_ratio": round(_ratio(alone.accepts, beside.accepts), 2),
        "p99_ms": {"alone": _ms(alone.callbacks), "beside": _ms(beside.callbacks)},
        "accept_p99_ms": {"alone": _ms(alone.accepts), "beside": _ms(beside.accepts)},
        "rss_growth_mib": round(growth, 1),
        "healthz_max_ms": round(healthz * 1000, 1),
        "calls": alone.started + beside.started,
        **zeros,
        "neighbours": {kind: dict(done) for kind, done in shown.crowd.items()},
    }


def p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))] if ordered else 0.0


def rss_growth_mib(samples: Sequence[float]) -> float:
    """Growth after the cache-filling time: the difference of the medians of the first and the last tenth of the samples."""
    tenth = max(1, len(samples) // 10)
    settled = samples[int(len(samples) * SETTLING) :]
    return _median(settled[-tenth:]) - _median(settled[:tenth])


def is_acceptable(alone: Sequence[float], beside: Sequence[float]) -> bool:
    return p99(beside) <= max(RATIO_MAX * p99(alone), p99(alone) + SLACK_SECONDS)


def _ratio(alone: Sequence[float], beside: Sequence[float]) -> float:
    return p99(beside) / p99(alone) if p99(alone) else 0.0


def _ms(values: Sequence[float]) -> float:
    return round(p99(values) * 1000, 1)


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
