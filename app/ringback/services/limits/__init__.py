"""Limits on what one principal, and all together, can make the service hold or do.

    quotas            limits for each principal
    body_admission    limits for the work that large request bodies make
    schema_checks     limits the CPU time of checks against JSON Schemas
    unread_responses  limits the memory of responses that their clients have not read
    pacing            pauses between the batches of one request

The limits of connections and of requests are those of `http_server`, those of callbacks those of `notifier`.
"""
