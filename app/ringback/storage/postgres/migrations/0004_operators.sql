-- oldest code: 1
-- What an operator looks for among all principals: webhooks whose last attempt failed, dead deliveries, the oldest queued call.
CREATE INDEX webhooks_failing ON webhooks (id, state) WHERE last_error IS NOT NULL AND state <> 'disabled';
CREATE INDEX webhooks_failing_of_principal ON webhooks (principal, id) WHERE last_error IS NOT NULL AND state <> 'disabled';
CREATE INDEX deliveries_dead_of_all ON ended_deliveries (id) WHERE state = 'dead';
-- A call with a later start is queued since that start.
CREATE INDEX calls_queued_since ON calls (coalesce(not_before, created_at)) WHERE phase = 'queued';
