"""Benchmarks: ratios, medians and their spread, from one run in which everything that is compared takes turns.

    scripts/bench ─▶ __main__ ─┬─▶ delivery ─┬─▶ throughput   bare loop | engine, sustained | engine, drain | procrastinate
                               │             ├─▶ latency      commit ─▶ receiver, tool's end ─▶ receiver, fsync apart
                               │             └─▶ isolation    hung receivers, a dead origin, hung names beside good ones
                               ├─▶ clients                    ours | aiohttp | httpx | httpx2
                               ├─▶ calls ────┬─▶ overhead     a call through REST | the SDK's client, directly
                               │             └─▶ waiting      ten thousand calls at a silent upstream: memory, idle CPU, polls
                               ├─▶ gateway                    a fast tool through /mcp/NAME | the same tool, directly
                               └─▶ loop                       POST /v1/calls → tool → callback | the same by naive_service

    engine        the real parts (SQLite store, Recorder, Dispatcher, Http1Sender), as bootstrap puts them together
    callback      the bytes that all variants send, and the bare loop
    task_queue    procrastinate on a PostgreSQL of its own
    upstream      an MCP server whose tool says when it ended
    service       Ringback as an operator starts it, in a process of its own; silent_upstream and lean_upstream are others
    naive_service the service that a developer writes in an afternoon: what `loop` compares with
    receivers     processes that answer, or never do; receivers_process is what runs in them
    measure       stopwatch, percentiles, ratios of paired rounds, facts about the machine

Absolute rates drift by half between two minutes of a shared machine. So nothing here is asserted, a ratio is always taken
between runs of the same round, and what a round shows is the median of them all.
"""
