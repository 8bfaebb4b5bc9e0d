-- Webhooks that match change notifications of upstreams, and demands of pollers and streams for them.

-- name: all
SELECT {change_subscription in webhooks}
FROM webhooks
WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled' AND expires_at IS NULL
UNION
SELECT {change_subscription in webhooks}
FROM webhooks
WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled' AND expires_at > :now
UNION
SELECT principal, json_extract(arguments, '$.upstream') AS upstream, json_extract(arguments, '$.uri') AS resource_uri
FROM event_demands
WHERE event_name = 'upstream.changed' AND polled_until > :now
ORDER BY principal, upstream, resource_uri;
