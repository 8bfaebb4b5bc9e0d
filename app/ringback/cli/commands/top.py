"""`ringback top`: what is open now, how calls ended, how long they took, the slowest upstreams, the failing webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ringback.cli.client_options import ONLY_OWN_PRINCIPAL, OperatorOptions, client_command, collect_first
from ringback.cli.output import ID_COLUMNS, create_console, model_to_json, print_json, strip_control_characters

if TYPE_CHECKING:
    from ringback.client import HourInsights, Insights, Latency, RingbackClient, Webhook

HOURS: Final = 24
UPSTREAMS_SHOWN: Final = 10
WEBHOOKS_SHOWN: Final = 10
_UNITS: Final = (("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
"""With their milliseconds."""
_LATENCY_COLUMNS: Final = ("median", "95 %", "99 %", "number")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    insights: Insights
    failing_webhooks: Sequence[Webhook]
    """The newest ones."""


@client_command()
def top(
    *,
    every: Annotated[float, typer.Option("--every", min=1, max=3600, help="Seconds between two readings.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    options: OperatorOptions,
) -> None:
    """Show what is open now and how the last calls and callbacks went, until interrupted.

    With --json, or if the output is no terminal, it is printed once.
    """
    console = create_console()
    if options.as_json:
        shown = options.run(_read)
        webhooks = [model_to_json(webhook) for webhook in shown.failing_webhooks]
        print_json({**model_to_json(shown.insights), "newest_failing_webhooks": webhooks})
    elif once or not console.is_terminal:
        console.print(_draw(options.run(_read)))
    else:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            options.run(
                lambda client: _read_repeatedly(client, every, lambda shown: live.update(_draw(shown), refresh=True))
            )


async def _read_repeatedly(client: RingbackClient, every: float, show: Callable[[_Shown], None]) -> None:
    while True:
        show(await _read(client))
        await asyncio.sleep(every)


async def _read(client: RingbackClient) -> _Shown:
    failing = await collect_first(client.webhooks(health="failing"), limit=WEBHOOKS_SHOWN)
    return _Shown(insights=await client.insights(hours=HOURS), failing_webhooks=failing)


# -- drawing --


def _draw(shown: _Shown) -> RenderableType:
    insights = shown.insights
    return Group(
        Text(f"Ringback at {insights.until:%Y-%m-%d %H:%M:%S} UTC", style="bold"),
        _draw_open(insights),
        *([Text(ONLY_OWN_PRINCIPAL.format(command="top"))] if insights.leaves_out_others else []),
        *([_draw_paused(insights)] if insights.paused_upstreams else []),
        *([] if insights.is_complete else [Text("Still counting: the hours lack some of what happened last.")]),
        _draw_ends(insights.hours),
        _draw_latencies(insights),
        *([_draw_upstreams(insights)] if insights.upstreams else []),
        *([_draw_webhooks(shown.failing_webhooks)] if shown.failing_webhooks else []),
    )


def _draw_open(insights: Insights) -> Table:
    open_work = {
        "calls working": insights.open_calls.get("working", 0),
        "waiting for input": insights.open_calls.get("input_required", 0),
        "queued": insights.queued_calls,
        "starting later": insights.scheduled_calls,
        "deliveries pending": insights.open_deliveries.get("pending", 0),
        "held": insights.open_deliveries.get("held", 0),
        "dead": insights.dead_deliveries,
        "failing webhooks": insights.failing_webhooks,
    }
    return _make_table("Open now", tuple(open_work), [tuple(open_work.values())])


def _draw_paused(insights: Insights) -> Text:
    names = ", ".join(insights.paused_upstreams)
    return Text(
        strip_control_characters(
            f"Paused upstreams, whose calls wait: {names}. Resume one: ringback upstreams resume NAME"
        )
    )


def _draw_ends(hours: Sequence[HourInsights]) -> Table:
    """What happened in this hour, in the last full one and in all hours."""
    recent = (hours[-1:], hours[-2:-1], hours)
    rows = [
        ("calls started", *(sum(hour.calls_started for hour in each) for each in recent)),
        *_count_rows("calls ended: ", recent, lambda hour: hour.calls_by_outcome),
        ("callbacks delivered", *(sum(hour.deliveries_delivered for hour in each) for each in recent)),
        ("callbacks given up", *(sum(hour.deliveries_dead for hour in each) for each in recent)),
        *_count_rows("attempts: ", recent, lambda hour: hour.attempts_by_category),
    ]
    return _make_table("Hour by hour", ("what", "this hour", "last hour", f"last {HOURS} hours"), rows)


def _count_rows(
    title: str, recent: Sequence[Sequence[HourInsights]], counts_of: Callable[[HourInsights], Mapping[str, int]]
) -> list[tuple[Any, ...]]:
    names = sorted({name for hours in recent for hour in hours for name in counts_of(hour)})
    return [
        (f"{title}{name}", *(sum(counts_of(hour).get(name, 0) for hour in hours) for hours in recent)) for name in names
    ]


def _draw_latencies(insights: Insights) -> Table:
    rows = [
        ("call, from its start at the upstream to its end", *_latency_cells(insights.call_duration)),
        ("callback, from its creation to the receiver's 2xx", *_latency_cells(insights.delivery_latency)),
    ]
    return _make_table(f"Durations of the last {HOURS} hours", ("what", *_LATENCY_COLUMNS), rows)


def _draw_upstreams(insights: Insights) -> Table:
    rows = [
        (each.upstream, *_latency_cells(each.call_duration), _count_unsuccessful(each.calls_by_outcome))
        for each in insights.upstreams[:UPSTREAMS_SHOWN]
    ]
    return _make_table("Slowest upstreams", ("upstream", *_LATENCY_COLUMNS, "unsuccessful"), rows)


def _draw_webhooks(webhooks: Sequence[Webhook]) -> Table:
    rows = [(webhook.id, webhook.url, webhook.state, webhook.last_error or "-") for webhook in webhooks]
    return _make_table("Failing webhooks", ("id", "url", "state", "last error"), rows)


def _count_unsuccessful(outcomes: Mapping[str, int]) -> int:
    return sum(number for outcome, number in outcomes.items() if outcome != "result")


def _latency_cells(latency: Latency) -> tuple[str, str, str, int]:
    p50, p95, p99 = (_format_duration(each) for each in (latency.p50_ms, latency.p95_ms, latency.p99_ms))
    return p50, p95, p99, latency.count


def _format_duration(milliseconds: int | None) -> str:
    """An upper bound: the bucket of a histogram ends there."""
    if milliseconds is None:
        return "-"
    unit, size = next(((unit, size) for unit, size in _UNITS if milliseconds >= size), _UNITS[-1])
    return f"≤ {milliseconds / size:.3g} {unit}"


def _make_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=name in ID_COLUMNS, overflow="fold")
    for row in rows:
        table.add_row(*(Text(strip_control_characters(str(cell))) for cell in row))
    return table
