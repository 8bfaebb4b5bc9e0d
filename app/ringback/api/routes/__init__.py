"""The operations: one module for each noun, with one function for each operation. `api.app` includes their routers.

    calls            start, list, read, wait for, answer and cancel calls
    reports          adopt tasks, and record calls that run elsewhere
    results          read stored results
    resume           exchange resume tokens, issue new ones
    webhooks         register, list, change, verify, test, replay and remove webhooks
    deliveries       list deliveries and send them again
    events           poll and follow the event log, publish events
    event_types      declare types of events
    upstreams        list, pause and reload upstreams, list their tools
    upstream_logins  sign in to upstreams and out
    keys             API keys
    usage            quotas, and how much of each is used
    insights         what happened hour by hour, client sessions
    erasures         erase a call, a session or a principal
    portal_links     links to pages of the dashboard that need no key
    audit            who changed what
    operations       health, readiness, problem types, public keys: without authentication
    status           what `ringback doctor` asks a running service
    metrics          Prometheus' format

An operation validates, calls one service and forms its response. The bodies are those of `ringback.schemas`.
"""
