"""Runs real MCP clients and servers with Ringback: `scripts/interop`.

    __main__ ─┬─ catalog         the clients and servers, what each can set and how
              ├─ features        what each client can use of Ringback, from its source
              ├─ adapters        the adapters of ringback.agents
              ├─ parallel_rows   runs rows side by side, for --jobs
              ├─ pins            their versions (pypi.json, npm.json), and the newest ones
              ├─ environments    a virtual environment or a node_modules for each, kept in a cache folder
              ├─ scenarios ──┬── driver_process ─▶ drivers/drive_….py | .mjs   one process: the client
              │              └── stage ─┬─ Ringback, started, stopped and killed
              │                         ├─ upstream     counts the runs of its tools
              │                         └─ receiver     keeps the callbacks
              ├─ terminal_scenarios      agents in a terminal (terminal_clients) with their own files, which
              │                          `ringback connect` writes, and a model with a script (scripted_model)
              ├─ event_scenarios         a client of MCP Events (event_clients) and its own webhook handler
              ├─ server_scenarios        Ringback in front of servers that others wrote
              ├─ adapter_scenarios       agents that park, are killed, and wake in another process (agent_session), and
              │                          checks without a Ringback (adapter_checks)
              ├─ labels          a client's session and callback, and the key of a tool's run
              ├─ judge           pure: from what was observed to a judgement
              └─ report          results.json, and the tables of scripts/INTEROP.md

`scripts/interop proxies` runs Ringback behind real proxies: proxies ─▶ proxy_checks ─▶ proxy_stage. `scripts/interop openapi`
lints the OpenAPI document and runs generated clients: openapi_clients, with its files in the folder `openapi`.

A driver calls tools as its framework calls them for a model, with the framework's default settings, and says what a model would
read. A judgement does not depend on the driver's opinion: the upstream says how often a tool ran, and the receiver which
callbacks arrived.
"""
