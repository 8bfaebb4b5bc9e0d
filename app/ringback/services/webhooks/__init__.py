"""Webhooks, and the event subscriptions of MCP clients: a subscription is a webhook that its client refreshes.

    registrations    register webhooks and callbacks
    shared_webhooks  webhooks that are registered once although clients ask for them repeatedly
    webhooks         read, list, change, verify, test and remove webhooks; rotate their secrets
    webhook_changes  what the owner of a webhook changes
    webhook_updates  what every change and removal of a webhook does in its transaction
    webhook_checks   ownership, secrets and subscription limits of webhooks
    verification     which webhooks must prove that their URL accepts callbacks
    attempt_scheduling  make the pending deliveries of a webhook due now

    event_subscriptions  subscribe MCP clients to events by webhook, refresh and unsubscribe
    callback_proofs      prove a callback URL before anything is stored
    subscribed_webhooks  the webhook and the row that a subscription is
    subscription_starts  where in the log a subscription begins, and what its client has missed
    subscription_ends    end subscriptions by their client, with their key, or with their event type
    subscription_log     log lines about subscriptions that begin, are refused and end

What a subscription is on the wire, and in which order it is checked, is in `protocol.mcp_events`.
"""
