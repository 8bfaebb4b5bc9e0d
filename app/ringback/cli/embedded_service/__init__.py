"""The service that `ringback mcp` starts by itself: one for all clients of a user on this machine.

    ringback mcp ──▶ starter ──▶ is a service running?   yes: its URL and key, from the runtime file
    (one a client)      │                                no:  start one, detached, and wait until it listens
                        ▼
                 service_process      `ringback mcp-service`: the usual service, on loopback, with an API key
                                      ends by itself when it has been idle (RINGBACK_IDLE_STOP_SECONDS)

    service_environment  the variables of the service, and the upstreams that are configured with them
    environment_file     … its file of NAME=VALUE lines
    file_watch      notices that the configuration or the variables have changed
    own_service     finds it for the client commands, which then need neither --url nor --api-key
    paths           the files of the service: configuration, database, locks, runtime file, log
    runtime_file    where the running service is, and the key for it; what is kept for the next start

`service.lock` decides who is the service: its process holds it for as long as it runs. So a service that was killed is noticed
at once, and the runtime file of a dead one is never believed: another user's process may have its port by now. `start.lock`
only keeps ten clients from starting ten processes of which nine would end again.

The service does not belong to a client: it has a session of its own, so calls continue after the client has closed its pipe.
"""
