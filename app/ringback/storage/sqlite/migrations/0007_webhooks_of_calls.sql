-- Webhooks that a call names: one that the client registered before, or one that calls of a session share because they give the
-- same callback URL. They receive the events of the call whatever they filter by. (The webhook that belongs to one call only is
-- found by its column `call_id`.) A row ends with its call. It may outlive its webhook: deleting a webhook that many calls have
-- named would then delete many rows, and ids are never used again.
CREATE TABLE call_webhooks (
    call_id    TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    PRIMARY KEY (call_id, webhook_id)
) STRICT, WITHOUT ROWID;

-- Whether any call names a webhook.
CREATE INDEX call_webhooks_of_webhook ON call_webhooks (webhook_id);

CREATE TRIGGER calls_name_no_webhooks AFTER DELETE ON calls
BEGIN
    DELETE FROM call_webhooks WHERE call_id = OLD.id;
END;

-- Webhooks by what they are for, so that a repeated callback URL finds its webhook, and the quota of webhooks is counted. Those of
-- one call are not shared, and the quota of calls limits them.
DROP INDEX webhooks_registered;
CREATE INDEX webhooks_of_target ON webhooks (principal, url, client_session_id, call_id) WHERE origin <> 'call' OR call_id IS NULL;
