"""The use cases: one door for every surface.

REST today, MCP and others later, all come through here; no surface talks to the store or to an upstream by itself. A service
method takes the caller first, checks its scope, and does the whole thing or nothing:

    calls       start, read, wait, join, list, result, cancel
    adoption    tasks that exist upstream, followed as calls
    reports     calls that run elsewhere, told by whoever runs them
    started     what these answer to whoever brought a call about
    webhooks    read, list, change, test, give a new secret, remove
    registrations  new webhooks, which hear from now on or from a place in the log
    verification   which webhooks have to prove that their URL wants callbacks
    events      poll the log, and follow it
    deliveries  what was sent, and what came of it
    replays     what was sent, sent again
    resume      a token becomes a call, its result and the events since; a fresh token, and the end of older ones
    quotas      how much of everything one principal may have at once
    keys        API keys, and who presents one
    insights    what can be called, and how the service is doing
    readiness   whether a real write is kept, asked once a second at most
    sealing_keys   a start is refused while keys are missing that sealed what is stored
    upkeep      what an operator does to a running service

What belongs to another principal and what does not exist are told apart nowhere: both are `NotFound` with the same words.
"""
