"""Benchmarks: ratios, medians and their spread, from one run in which the compared variants take turns.

    scripts/bench ─▶ __main__ ─┬─▶ delivery ─┬─▶ throughput   bare loop | engine, sustained | engine, drain | procrastinate
                               │             ├─▶ latency      commit ─▶ receiver, tool's end ─▶ receiver, fsync apart
                               │             └─▶ isolation    hung receivers, a dead origin, hung names beside good ones
                               ├─▶ scale ────┬─▶ crowds       each operation beside few and many other rows
                               │             └─▶ backlog      an origin after an outage | in steady work
                               ├─▶ events ───┬─▶ event_matching     ends of calls beside few and many MCP subscriptions
                               │             ├─▶ event_subscribing  subscribe, refresh, unsubscribe beside them
                               │             └─▶ event_streams      few and many idle streams: memory, CPU, one event
                               ├─▶ nodes ────▶ node_process   one, two and four processes on one PostgreSQL
                               ├─▶ clients                    ours | aiohttp | httpx | httpx2
                               ├─▶ calls ────┬─▶ overhead     a call through REST | the SDK's client, directly
                               │             └─▶ waiting      ten thousand calls at a silent upstream: memory, idle CPU, polls
                               ├─▶ gateway ──▶ sdk_proxy      a fast tool through /mcp/NAME | directly | a proxy without a store
                               ├─▶ full_loop                  POST /v1/calls → tool → callback | the same by naive_service
                               ├─▶ tracing                    traces exported or not, in the same loop
                               ├─▶ sealing                    RINGBACK_SEAL=all | =secrets, in the same loop
                               ├─▶ dashboard ─┬─▶ live_viewers  the loop beside a hundred live lists | without any
                               │              └─▶ page_times    pages of the dashboard beside few and many calls
                               └─▶ cli                        CPU to start a command | the imports of any such command

    engine           the production components (store, Recorder, Dispatcher, Http1Sender), built as bootstrap does
    databases        empty databases: SQLite files, or on a PostgreSQL that starts and stops with the run
    signed_post      the bytes that all variants send, and the bare loop
    task_queue       procrastinate on PostgreSQL
    store_work       statements, instructions and rows of a store, for `events`
    upstream         an MCP server whose tool returns the time of its end
    service          Ringback as an operator starts it, in its own process; silent_upstream and lean_upstream are others
    naive_service    a service that a developer writes in an afternoon, for `full_loop`
    receivers        processes that respond or never do; receiver_process runs in them
    measurement      stopwatch, percentiles, ratios of paired rounds, facts about the machine

Absolute rates on a shared machine drift by half within two minutes. So benchmarks assert nothing, compute each ratio within
one round, and report the median over the rounds.
"""
