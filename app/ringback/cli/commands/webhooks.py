"""`ringback webhooks`: manages webhooks through the REST API."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from ringback.cli.arguments import parse_headers, require_finite, time_option, with_offset
from ringback.cli.client_options import (
    CORRELATION_OPTIONS,
    ONLY_OWN_PRINCIPAL,
    DocumentOptions,
    DryRun,
    OfSession,
    OfTool,
    OfUpstream,
    OperatorOptions,
    Outcome,
    PrintOptions,
    client_command,
    leaves_out_others,
)
from ringback.cli.commands.webhook_states import disable, enable, pause, print_open_deliveries, resume
from ringback.cli.output import print_json, print_message, print_model, print_models, print_output, print_table
from ringback.cli.webhook_names import WebhookName, find_webhook_id, run_with_webhook

if TYPE_CHECKING:
    from ringback.client import (
        ChangedWebhook,
        NamedWebhookOptions,
        RegisteredWebhook,
        Replay,
        RequestedDelivery,
        RingbackClient,
        RotatedWebhook,
        Webhook,
    )

app = typer.Typer(no_args_is_help=True, help="Manage webhooks.")

_COLUMNS: Final = (
    "id",
    "name",
    "state",
    "paused_at",
    "url",
    "events",
    "only",
    "expires_at",
    "last_error",
    "description",
)
LABEL_ADVICE: Final = "The correlation_id is a label. To receive only the calls that have it: --match-correlation"
"""Because the same option filters in all other commands."""
_FILTERS: Final = ("upstream", "resource_uri", "tool", "call_id", "client_session_id")


@app.command("list")
@client_command()
def list_webhooks(
    *,
    failing: Annotated[
        bool, typer.Option("--failing", help="Only webhooks whose last attempt or challenge failed.")
    ] = False,
    state: Annotated[
        str | None,
        typer.Option("--state", help="Only those in this state: active, pending_verification, suspended or disabled."),
    ] = None,
    options: OperatorOptions,
) -> None:
    """List your webhooks, newest first."""

    async def read_all(client: RingbackClient) -> tuple[list[Webhook], bool]:
        webhooks = [webhook async for webhook in client.webhooks(health="failing" if failing else None, state=state)]
        asks = (failing or not webhooks) and not options.as_json
        return webhooks, asks and await leaves_out_others(client, options)

    webhooks, is_partial = options.run(read_all)
    if options.as_json:
        print_models(webhooks)
    elif webhooks:
        print_table(
            options.with_owner(_COLUMNS),
            (
                webhook.model_dump() | {"only": describe_filters(webhook), "last_error": describe_last_error(webhook)}
                for webhook in webhooks
            ),
        )
        _print_advice(webhooks)
    elif failing and state is None:
        print_message("No webhook is failing.")
    elif options.owner is not None or state is not None:
        print_message("There are no such webhooks.")
    else:
        print_message("You have no webhooks. Register one: ringback webhooks add CALLBACK_URL")
    if is_partial:
        print_message(ONLY_OWN_PRINCIPAL.format(command=f"webhooks list{' --failing' if failing else ''}"))


def describe_filters(webhook: Webhook) -> str | None:
    """What limits the events that it receives, for example `tool=git_log client_session_id=s1`."""
    values = {name: getattr(webhook, name) for name in _FILTERS}
    if webhook.match_correlation:
        values["correlation_id"] = webhook.correlation_id
    if webhook.outcomes:
        values["outcomes"] = ",".join(webhook.outcomes)
    return " ".join(f"{name}={value}" for name, value in values.items() if value) or None


def describe_last_error(webhook: Webhook) -> str | None:
    """The category of the last error with the fact beside it: `http_5xx (status 503)`."""
    detail = webhook.last_error_detail
    return f"{webhook.last_error} ({detail})" if webhook.last_error and detail else webhook.last_error


def _print_advice(webhooks: list[Webhook]) -> None:
    """One line for each failing webhook: what to do next."""
    for webhook in webhooks:
        if webhook.last_error_advice:
            print_message(f"{webhook.id}: {webhook.last_error}. {webhook.last_error_advice}")


@app.command()
@client_command()
def add(
    callback_url: Annotated[str, typer.Argument(metavar="CALLBACK_URL", help="The https URL that receives callbacks.")],
    *,
    event: Annotated[
        list[str] | None,
        typer.Option("--event", help="An event. May be repeated. Default: the ends of calls and requests for input."),
    ] = None,
    outcome: Annotated[
        list[Outcome] | None,
        typer.Option("--outcome", help="Only calls that end like this. May be repeated. Default: all."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Your name for it. The same name again changes the webhook instead of adding one."),
    ] = None,
    upstream: OfUpstream = None,
    resource: Annotated[
        str | None, typer.Option("--resource", help="With --event upstream.changed: only changes of this resource URI.")
    ] = None,
    tool: OfTool = None,
    session: OfSession = None,
    correlation: Annotated[
        str | None,
        typer.Option(
            *CORRELATION_OPTIONS,
            help="A label, and not a filter: its callbacks have it as webhook_correlation_id.",
        ),
    ] = None,
    match_correlation: Annotated[
        bool, typer.Option("--match-correlation", help="Make the correlation_id a filter: only calls that have it.")
    ] = False,
    secret: Annotated[str | None, typer.Option("--secret", help="Your own signing secret, whsec_….")] = None,
    include_result: Annotated[
        bool,
        typer.Option("--include-result", help="Include results in callbacks, as far as a body of 256 KiB holds them."),
    ] = False,
    detached: Annotated[
        bool, typer.Option("--detached", help="Send no callback for an end that the client received while it waited.")
    ] = False,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="One callback at a time for each session, in the order of the log.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option("--rate-per-second", callback=require_finite, help="Largest number of attempts a second."),
    ] = None,
    retry: Annotated[
        list[int] | None,
        typer.Option(
            "--retry",
            help="Seconds until one more attempt. Repeat it for a schedule of your own of up to 20 steps, 4 days together.",
        ),
    ] = None,
    description: Annotated[str | None, typer.Option("--description", help="A note on its purpose.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME:VALUE", help="A header that every callback has. May be repeated."),
    ] = None,
    options: PrintOptions,
) -> None:
    """Register a callback URL and print its signing secret, which cannot be printed again."""
    if match_correlation and correlation is None:
        raise typer.BadParameter("give --correlation, too", param_hint="--match-correlation")
    given = {
        "events": event,
        "outcomes": outcome,
        "upstream": upstream,
        "resource_uri": resource,
        "tool": tool,
        "client_session_id": session,
        "correlation_id": correlation,
        "match_correlation": match_correlation or None,
        "secret": secret,
        "include_result": include_result or None,
        "when": "detached" if detached else None,
        "ordered": ordered or None,
        "rate_per_second": rate,
        "retries": {"schedule": retry} if retry else None,
        "description": description,
        "headers": parse_headers(header or []) or None,
    }
    chosen = cast("NamedWebhookOptions", {member: value for member, value in given.items() if value is not None})
    webhook = options.run(
        lambda client: (
            client.register_webhook(callback_url, **chosen)
            if name is None
            else client.put_webhook(name, callback_url, **chosen)
        )
    )
    options.print_model(webhook, _print_registration)
    if correlation is not None and not match_correlation and not options.as_json:
        print_message(LABEL_ADVICE)


def _print_registration(webhook: RegisteredWebhook) -> None:
    print_output(f"id: {webhook.id}")
    print_output(f"state: {webhook.state}")
    if webhook.secret:
        print_output(f"secret: {webhook.secret}")
    print_message(webhook.hears)


@app.command("show")
@client_command()
def show_webhook(webhook: WebhookName, *, options: DocumentOptions) -> None:
    """Show a webhook as JSON, without its secret."""
    print_model(run_with_webhook(options, webhook, lambda client, webhook_id: client.webhook(webhook_id)))


@app.command()
@client_command()
def remove(webhook: WebhookName, *, options: OperatorOptions) -> None:
    """Remove a webhook, and cancel its undelivered callbacks. This also ends the subscription of an MCP client."""

    async def remove_found(client: RingbackClient) -> str:
        webhook_id = await find_webhook_id(client, webhook)
        await client.delete_webhook(webhook_id)
        return webhook_id

    webhook_id = options.run(remove_found)
    if options.as_json:
        print_json({"id": webhook_id, "removed": True})
    else:
        print_message(f"{webhook_id} is removed.")


@app.command()
@client_command()
def verify(webhook: WebhookName, *, options: OperatorOptions) -> None:
    """Send a challenge to a webhook's URL, which must answer it before it receives callbacks."""
    verified = run_with_webhook(options, webhook, lambda client, webhook_id: client.verify_webhook(webhook_id))
    options.print_model(verified, _print_verification)


def _print_verification(webhook: ChangedWebhook) -> None:
    print_output(f"state: {webhook.state}")
    print_open_deliveries(webhook)
    if webhook.last_error and webhook.state == "pending_verification":
        print_message(f"It is not verified: {describe_last_error(webhook)}. {webhook.last_error_advice or ''}".rstrip())


@app.command("test")
@client_command()
def send_test(webhook: WebhookName, *, options: OperatorOptions) -> None:
    """Send a signed test callback to a webhook. `ringback trigger` also waits for its outcome."""
    requested = run_with_webhook(options, webhook, lambda client, webhook_id: client.test_webhook(webhook_id))
    options.print_model(requested, _print_test)


def _print_test(delivery: RequestedDelivery) -> None:
    print_output(delivery.id)
    print_open_deliveries(delivery)
    print_message(f"See the outcome: ringback deliveries show {delivery.id}")


@app.command("rotate-secret")
@client_command()
def rotate_secret(
    webhook: WebhookName,
    *,
    secret: Annotated[str | None, typer.Option("--secret", help="Your own signing secret, whsec_….")] = None,
    overlap: Annotated[
        float | None,
        typer.Option(
            "--overlap-seconds",
            min=0,
            callback=require_finite,
            help="Seconds that earlier secrets still sign. Default: a day. 0 ends them now.",
        ),
    ] = None,
    options: PrintOptions,
) -> None:
    """Give a webhook a new signing secret and print it. It cannot be printed again."""
    rotated = run_with_webhook(
        options,
        webhook,
        lambda client, webhook_id: client.rotate_secret(webhook_id, secret=secret, overlap_seconds=overlap),
    )
    options.print_model(rotated, partial(_print_rotation, has_overlap=overlap != 0))


def _print_rotation(rotated: RotatedWebhook, *, has_overlap: bool) -> None:
    if rotated.secret:
        print_output(rotated.secret)
    if has_overlap:
        print_message(f"Earlier secrets also sign until {rotated.overlap_ends_at:%Y-%m-%d %H:%M:%S} UTC.")
    else:
        print_message("Earlier secrets sign nothing from now on.")
    print_open_deliveries(rotated)


@app.command()
@client_command()
def replay(
    webhook: WebhookName,
    *,
    since: Annotated[datetime | None, time_option("--since", "Events from this time on.")] = None,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Events after this cursor.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="All deliveries that were given up.")] = False,
    dry_run: DryRun = False,
    options: OperatorOptions,
) -> None:
    """Send a webhook's earlier callbacks again."""
    replay = run_with_webhook(
        options,
        webhook,
        lambda client, webhook_id: client.replay_webhook(
            webhook_id, since=with_offset(since), cursor=cursor, dead=dead, dry_run=dry_run
        ),
    )
    options.print_model(replay, partial(_print_replay, dry_run=dry_run))


def _print_replay(replay: Replay, *, dry_run: bool) -> None:
    print_output(f"{'would be replayed' if dry_run else 'replayed'}: {replay.replayed}")
    print_output(f"still_open: {replay.still_open}")
    print_open_deliveries(replay, dry_run=dry_run)
    if replay.more:
        next_step = f"add --cursor {replay.cursor}" if replay.cursor else "run the command again"
        print_message(f"There are more events: {next_step}.")


app.command()(enable)
app.command()(disable)
app.command()(pause)
app.command()(resume)
