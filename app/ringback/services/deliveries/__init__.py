"""Deliveries: what was sent to whom, and sending it again.

    deliveries       read deliveries and their attempts
    replays          send deliveries again
    bulk_redelivery  send the ended deliveries again that match a filter

`notifier.dispatcher` sends them; `webhooks.attempt_scheduling` makes those of one webhook due now.
"""
