"""`ringback upstreams login` and `logout`: sign in to an upstream in a browser."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ringback.cli.client_options import PrintOptions, ServiceOptions, UpstreamName, client_command, start_own_service
from ringback.cli.login_redirects import RedirectWaiter, listen_on_loopback, read_pasted_lines
from ringback.cli.output import print_message, print_output

if TYPE_CHECKING:
    from ringback.client import CompletedLogin, RingbackClient, StartedLogin

NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Open no browser: only print the address.")]
Scope = Annotated[
    str | None,
    typer.Option(
        "--scope", metavar="SCOPES", help="The scopes to ask for, separated by spaces. Default: what it asks for."
    ),
]

WAIT_SECONDS: Final = 600.0
"""As long as the service keeps a login."""
_LOOPBACK_ADVICE: Final = (
    "If the browser runs on another machine, it will show that it cannot reach 127.0.0.1: paste that address here, and press "
    "Enter."
)


class LoginTimedOut(Exception):
    """The user did not complete the login in time."""


@client_command(LoginTimedOut)
def login(upstream: UpstreamName, *, scope: Scope = None, no_browser: NoBrowser = False, options: PrintOptions) -> None:
    """Sign in to an upstream in a browser. Calls that wait for it go on.

    Upstreams with "credentials": "shared" have one login for all principals, which needs the scope admin. Over SSH, open the
    printed address in any browser and paste the address that it shows at the end.
    """
    start_own_service(options.url, options.api_key)
    completed = options.run(lambda client: sign_in(client, upstream, scope=scope, opens_browser=not no_browser))
    options.print_model(completed, _print_completed)


def _print_completed(completed: CompletedLogin) -> None:
    whose = "for all principals" if completed.owner == "shared" else "for your calls"
    scopes = f" Scope: {completed.scope}." if completed.scope else ""
    print_output(f"Signed in to {completed.upstream} {whose}.{scopes}")


@client_command()
def logout(upstream: UpstreamName, *, options: ServiceOptions) -> None:
    """Sign out of an upstream: the service deletes its tokens, and revokes them if the provider offers that."""
    options.run(lambda client: client.end_login(upstream))
    print_output(f"Signed out of {upstream}.")


async def sign_in(client: RingbackClient, upstream: str, *, scope: str | None, opens_browser: bool) -> CompletedLogin:
    waiter = RedirectWaiter()
    async with listen_on_loopback(waiter, upstream) as redirect_uri:
        started = await client.start_login(upstream, redirect_uri=redirect_uri, scope=scope)
        waiter.expect_redirect(started.authorization_url, redirect_uri)
        await _show_address(started, opens_browser=opens_browser)
        _read_standard_input(waiter)
        redirected_to = await _wait_for_redirect(waiter, started)
        return await client.complete_login(upstream, redirected_to)


async def _show_address(started: StartedLogin, *, opens_browser: bool) -> None:
    is_open = (
        opens_browser and can_open_browser() and await asyncio.to_thread(webbrowser.open, started.authorization_url)
    )
    print_message(
        f"{'A browser opens' if is_open else 'Open'} this address to sign in to {started.upstream}:\n\n"
        f"{started.authorization_url}\n\n{_LOOPBACK_ADVICE}"
    )


def can_open_browser() -> bool:
    """Whether this machine has a browser with windows. Without one, Python would start a text browser in this terminal."""
    if sys.platform in {"darwin", "win32"}:
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _read_standard_input(waiter: RedirectWaiter) -> None:
    def offer_line(line: str) -> None:
        if not waiter.offer_url(line):
            print_message(
                "This is not the address to which this login leads at its end. Sign in, then paste the whole address that "
                "the browser shows: it begins with http://127.0.0.1."
            )

    try:
        file_descriptor = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return  # there is no standard input
    read_pasted_lines(file_descriptor, offer_line)


async def _wait_for_redirect(waiter: RedirectWaiter, started: StartedLogin) -> str:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await waiter.wait()
    except TimeoutError:
        raise LoginTimedOut(
            f"The sign-in to {started.upstream} was not completed in time. "
            f"Start again: ringback upstreams login {started.upstream}"
        ) from None
