-- oldest code: 6
-- What the webhook-id of a subscription's events is, and how many attempts to it failed within an hour.
-- A node of an older version cannot read the envelope that ends a subscription: let clients subscribe once all nodes have this one.
ALTER TABLE webhooks ADD COLUMN message_ids text COLLATE "C" NOT NULL DEFAULT 'event';
ALTER TABLE webhooks ADD COLUMN counted_since bigint;
ALTER TABLE webhooks ADD COLUMN counted_attempts bigint NOT NULL DEFAULT 0;
ALTER TABLE webhooks ADD COLUMN counted_failures bigint NOT NULL DEFAULT 0;

-- A held delivery that is due in the future has a frozen retry window from now on. Those held before have none.
UPDATE deliveries SET due_at = created_at WHERE state = 'held';
