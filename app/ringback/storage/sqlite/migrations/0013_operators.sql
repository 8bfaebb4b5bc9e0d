-- oldest code: 10
-- Webhooks whose last attempt or challenge failed: an operator lists those of all principals, an owner his.
CREATE INDEX webhooks_failing ON webhooks (id, state) WHERE last_error IS NOT NULL AND state <> 'disabled';
CREATE INDEX webhooks_failing_of_principal ON webhooks (principal, id) WHERE last_error IS NOT NULL AND state <> 'disabled';
