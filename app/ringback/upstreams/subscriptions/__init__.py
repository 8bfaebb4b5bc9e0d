"""Changes that upstreams report without a request: lists and resources.

change_notifications     publishes changes to listeners in this process
resource_subscriptions   one subscription at the upstream for each watched resource
upstream_changes         the worker that writes `upstream.changed` events for webhooks
"""
