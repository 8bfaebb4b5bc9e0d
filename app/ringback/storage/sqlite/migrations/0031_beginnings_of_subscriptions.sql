-- oldest code: 20
-- The position in the log after which a subscription's present life has had every event. A refresh with an older cursor gets the events
-- between. 0, for a life that is older than this column or that a node of an older version began: every cursor is after it.
ALTER TABLE subscriptions ADD COLUMN began_after INTEGER NOT NULL DEFAULT 0;
