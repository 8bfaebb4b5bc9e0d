"""Ringback: the callback service for MCP. Call a tool, hang up, get rung back.

    client ──POST /v1/calls──▶ services ──tx: call row──▶ 202 {call, resume_token, webhooks}      (the client may vanish)
           ──tools/call /mcp─▶                       └──▶ result | question | task | pending result
                                            │ wake
    runner ──lease──▶ tx: dispatched_at ──▶ driver ──tools/call──▶ MCP server
                                            │ progress, result
                             notifier.record ── ONE tx: call + events + deliveries ──▶ wake
    notifier.dispatcher ──lease──▶ guarded, signed POST ──▶ receiver ──2xx──▶ tx: attempt + delivered
    receiver: verify ▸ dedupe ▸ correlate ▸ POST /v1/resume {resume_token} ──▶ call + result + events since

Three rules carry everything:

1. Commit before you answer. Nothing is acknowledged that a `kill -9` could lose.
2. One transaction joins result, events and deliveries. No second queue can fall out of step with the database.
3. Never hold a transaction over the network. Lease (tx), network, record (tx); the record checks the lease's token.

Imports point down only; names on one line joined by | are strangers to each other (pyproject.toml holds the contract):

    __main__  >  main  >  cli | extension  >  server  >  bootstrap | client | receiver  >  keyring  >  settings  >  http_server
      >  api | mcp_server | identity | storage | runner | janitor | resealing | supervisor
      >  services  >  notifier  >  telemetry | exit_deadline  >  admission | waits  >  domain  >  signing

`http_server` bounds what a peer may send before the application sees a request. `admission` lets requests that start calls go
before background work. `exit_deadline` ends a process that was told to stop and does not.
"""

__version__ = "0.1.0"
