-- A crowd of rows that no question of a test matches, and a few rows that are found beside it (tests/support/filled_store.py).
-- The statements run in this order.

-- name: calls
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO calls (
    id, principal, upstream, tool, client_session_id, correlation_id, idempotency_key, request_hash, status, phase, handle,
    input_round, accepts_input, rerun_policy, rerun_allowed, cancel_requested, lease_owner, lease_token, lease_until, runs,
    token_version, created_at, updated_at, deadline_at, expires_at, argument_bytes
)
SELECT printf('call_%09d', n), iif(n % 10, 'alice', 'bob'), 'busy', 'common', 'crowd', 'crowd', 'key-' || n, 'hash',
    CASE n % 4 WHEN 0 THEN 'completed' WHEN 3 THEN 'input_required' ELSE 'working' END,
    CASE n % 4 WHEN 0 THEN 'done' WHEN 1 THEN 'queued' WHEN 2 THEN 'running' ELSE 'parked' END,
    iif(n % 2, NULL, json_array('task', json_object('task_id', 'task-' || n))),
    0, 0, 'never', 0, 0, 'other', 'lease', iif(n % 4 = 2, :future, NULL), iif(n % 10, 0, 2),
    0, :past, :past, :future, iif(n % 4 = 0, :future, NULL), 4
FROM numbers;

-- name: scheduled calls
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO calls (
    id, principal, upstream, tool, request_hash, status, phase, input_round, accepts_input, rerun_policy, rerun_allowed,
    cancel_requested, runs, token_version, created_at, updated_at, not_before, deadline_at, argument_bytes
)
SELECT printf('call_later%09d', n), iif(n % 10, 'alice', 'bob'), 'busy', 'common', 'hash', 'working', 'scheduled', 0, 0, 'never', 0,
    0, 0, 0, :past, :past, :future, :future, 4
FROM numbers;

-- name: events
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO events (principal, seq, id, name, call_id, client_session_id, correlation_id, upstream, tool, data, created_at)
SELECT iif(n < :rows * 9 / 10, 'alice', 'bob'), n + 1, 'evt_' || n, 'call.progress', 'call_talkative', 'crowd', 'crowd',
    'busy', 'common', '{}', :past + n
FROM numbers;

-- name: deliveries
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_owner, lease_token, lease_until, created_at, finished_at
)
SELECT printf('dlv_%09d', n), iif(n % 10, 'alice', 'bob'), 'wh_crowd', 'evt_' || n,
    iif(n % 16 = 8, 'progress', 'event'), 'call_talkative', iif(n % 32 = 1, NULL, n), 1,
    CASE n % 8 WHEN 0 THEN 'delivered' WHEN 1 THEN 'pending' WHEN 2 THEN 'held' WHEN 3 THEN 'leased' WHEN 4 THEN 'dead'
        WHEN 5 THEN 'cancelled' WHEN 6 THEN 'pending' ELSE 'delivered' END,
    2, iif(n % 8 = 6, :past, :future), :future, iif(n % 8 = 1, 'session-' || n, NULL),
    iif(n % 8 = 3, 'other', NULL), iif(n % 8 = 3, 'lease', NULL), iif(n % 8 = 3, :future, NULL), :past,
    iif(n % 8 IN (0, 4, 5, 7), :future, NULL)
FROM numbers;

-- name: webhooks
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO webhooks (
    id, principal, url, events, upstream, call_id, client_session_id, correlation_id, match_correlation, secrets, retries,
    include_result, "when", ordered, state, origin, created_at, updated_at, expires_at, failures, openings, paused_until,
    last_error
)
SELECT printf('wh_%09d', n), iif(n % 10, 'alice', 'bob'), 'https://crowd.example/', '["call.finished","upstream.changed"]',
    'busy', iif(n % 3, printf('call_%09d', n), NULL), iif(n % 3, NULL, iif(n % 12 = 3, 'crowd', 'session-' || n)), 'crowd', 1, x'01', 'standard',
    0, 'always', 0, iif(n % 2, 'suspended', 'disabled'), iif(n % 3, 'call', 'api'), :past, :past,
    iif(n % 10, :past, NULL), 0, 0, iif(n % 2, :future, NULL), iif(n % 2, 'timeout', NULL)
FROM numbers;

-- name: tombstones
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO tombstones (call_id, principal, idempotency_key, request_hash, expired_at)
SELECT 'call_gone' || n, iif(n % 10, 'alice', 'bob'), 'key-' || n, 'hash', :future
FROM numbers;

-- name: turns
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO turns
SELECT 'busy', 'principal-' || n, n
FROM numbers;

-- name: origins
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO origins (origin, failures, openings, paused_until, changed_at)
SELECT 'https://crowd.example:' || n, 1, 1, :future, :future
FROM numbers;

-- name: proofs
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO proofs
SELECT iif(n % 10, 'alice', 'bob'), 'https://crowd.example/' || n, :future
FROM numbers;

-- name: challenges_sent
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO challenges_sent (origin, principal, sent_at)
SELECT 'https://crowd.example', 'carol', :past + n
FROM numbers;

-- name: api_keys
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO api_keys (id, principal, name, hash, prefix, scopes, upstreams, created_at, revoked_at)
SELECT 'key_' || n, 'alice', 'k', 'hash-' || n, 'p', '["calls"]', NULL, :past, NULL
FROM numbers;

-- name: attempts
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO attempts (delivery_id, id, number, started_at, duration_ms, category, status_code, excerpt)
SELECT 'dlv_wh_rare-delivered-' || n, 'att', 1, :past, 1, 'ok', 200, NULL
FROM numbers;

-- name: deliveries that are over
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, created_at, finished_at
)
SELECT 'dlv_over' || n, 'alice', 'wh_zzz', 'evt_over' || n, 'progress', 'call_over', n, 1, 'delivered', 1, :past, :past, :past, :future
FROM numbers;

-- name: deliveries sent again
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_token, lease_until, created_at, finished_at
)
SELECT id || '-again', principal, webhook_id, event_id, kind, call_id, seq, 2, 'delivered', 1, due_at, give_up_at, NULL,
    NULL, NULL, created_at, :future
FROM deliveries WHERE state = 'dead';

-- name: deliveries to each webhook
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_token, lease_until, created_at, finished_at
)
SELECT 'dlv_to_' || id || '_' || state, principal, id, 'evt_of_' || id || '_' || state, 'event', call_id, 1, 1, state, 0,
    :future, :future, NULL, NULL, NULL, :past, NULL
FROM (SELECT id, principal, call_id FROM webhooks WHERE client_session_id IS NOT NULL OR call_id IS NOT NULL)
CROSS JOIN (SELECT 'held' AS state UNION ALL SELECT 'pending');

-- name: few calls
INSERT INTO calls (
    id, principal, upstream, tool, client_session_id, correlation_id, idempotency_key, request_hash, status, phase, handle,
    input_round, accepts_input, rerun_policy, rerun_allowed, cancel_requested, lease_owner, lease_token, lease_until, runs,
    token_version, created_at, updated_at, deadline_at, expires_at, argument_bytes
)
SELECT 'call_' || id, 'alice', 'rare', 'rare', 'rare', 'rare', 'rare-' || id, 'hash', status, phase, NULL,
    0, 0, 'never', 0, 0, 'me', 'lease-me', iif(phase = 'running', :past, NULL), iif(id = 'rare', 2, 0),
    0, :past, :past, :past, iif(phase = 'done', :past, NULL), 4
FROM (
    SELECT '-1' AS id, 'failed' AS status, 'done' AS phase
    UNION ALL SELECT '-2', 'working', 'queued'
    UNION ALL SELECT '-3', 'working', 'running'
    UNION ALL SELECT 'rare', 'working', 'running'
);

-- name: watching webhooks
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO webhooks (
    id, principal, url, events, upstream, resource_uri, match_correlation, secrets, retries, include_result, "when", ordered,
    state, origin, created_at, updated_at, failures, openings
)
SELECT printf('wh_000000000_watching_%09d', n), printf('other-%09d', n), 'https://crowd.example/', '["upstream.changed"]', 'watched',
    iif(n % 2, 'book://crowd', NULL), 0, x'01', 'standard', 0, 'always', 0, 'active', 'api', :past, :past, 0, 0
FROM numbers;

-- name: few watching webhooks
INSERT INTO webhooks (
    id, principal, url, events, upstream, resource_uri, match_correlation, secrets, retries, include_result, "when", ordered,
    state, origin, created_at, updated_at, failures, openings
)
VALUES ('wh_watching', 'alice', 'https://rare.example/', '["upstream.changed"]', 'rare', 'book://rare', 0, x'01', 'standard',
    0, 'always', 0, 'active', 'api', :past, :past, 0, 0);

-- name: few webhooks
INSERT INTO webhooks (
    id, principal, url, events, upstream, call_id, client_session_id, correlation_id, match_correlation, secrets, retries,
    include_result, "when", ordered, state, origin, created_at, updated_at, expires_at, failures, openings, paused_until
)
SELECT id, 'alice', 'https://rare.example/', '["call.finished"]', NULL, NULL, NULL, NULL, 0, x'01', 'standard',
    0, 'always', 0, state, 'api', :past, :past, expires_at, 0, 0, NULL
FROM (
    SELECT 'wh_crowd' AS id, 'active' AS state, NULL AS expires_at
    UNION ALL SELECT 'wh_rare', 'active', NULL
    UNION ALL SELECT 'wh_zzz', 'suspended', :past - 1
);

-- name: deliveries of one event
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_token, lease_until, created_at, finished_at
)
SELECT 'dlv_shared_' || id, 'alice', id, 'evt_shared', 'event', NULL, 1, 1, 'delivered', 1, :past, :future, NULL, NULL, NULL,
    :past, :future
FROM webhooks WHERE id < 'wh_a';

-- name: few deliveries of that event
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_token, lease_until, created_at, finished_at
)
VALUES ('dlv_shared_wh_rare', 'alice', 'wh_rare', 'evt_shared', 'event', NULL, 1, 1, 'dead', 1, :past, :future, NULL, NULL, NULL,
    :past, :future);

-- name: few deliveries
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_owner, lease_token, lease_until, created_at, finished_at
)
SELECT 'dlv_' || webhook_id || '-' || state, 'alice', webhook_id, 'evt_' || webhook_id || '-' || state, 'event',
    'call_rare', 1, 1, state, 0, :past, :past, NULL, iif(state = 'leased', 'me', NULL),
    iif(state = 'leased', 'lease-me', NULL), iif(state = 'leased', :past, NULL), :past,
    iif(state = 'delivered', :past, NULL)
FROM (SELECT 'wh_rare' AS webhook_id UNION ALL SELECT 'wh_zzz')
CROSS JOIN (
    SELECT 'held' AS state UNION ALL SELECT 'pending' UNION ALL SELECT 'leased' UNION ALL SELECT 'dead'
    UNION ALL SELECT 'delivered'
)
WHERE webhook_id = 'wh_rare' OR state = 'held';

-- name: around: inputs
INSERT INTO inputs (call_id, arguments, meta) SELECT id, '{}', '{}' FROM calls WHERE id <> 'call_-1';

-- name: around: results
INSERT INTO results (call_id, body) SELECT id, x'7b7d' FROM calls WHERE status = 'completed';

-- name: around: bodies
INSERT INTO bodies (delivery_id, principal, body) SELECT id, principal, CAST(char(1, 1) || 'k' || hex(zeroblob(50)) AS BLOB)
FROM deliveries WHERE id <> 'dlv_wh_zzz-held';

-- name: around: challenges
INSERT INTO challenges
SELECT id, principal, 'https://crowd.example/' || id, 'https://crowd.example', 1, :future, NULL
FROM webhooks WHERE id < 'wh_a';

-- name: around: log_heads
INSERT INTO log_heads (principal, seq, retention_floor)
SELECT principal, max(seq), min(seq) - 1 FROM events GROUP BY principal;

-- name: around: call_counts
INSERT INTO call_counts SELECT principal, status, count(*), 0, 4 * count(*) FROM calls GROUP BY principal, status;

-- name: around: byte_counts
INSERT INTO byte_counts (principal, event_bytes, delivery_bytes)
SELECT principal, sum(event_bytes), sum(delivery_bytes)
FROM (
    SELECT principal, length(data) AS event_bytes, 0 AS delivery_bytes FROM events
    WHERE occurred_at IS NOT NULL OR name = 'call.progress'
    UNION ALL SELECT principal, 0, length(body) FROM bodies
) AS counted
GROUP BY principal;

-- name: around: audit_counts
INSERT INTO audit_counts (owner, entries) SELECT owner, count(*) FROM audit_entries GROUP BY owner;

-- name: around: held_counts
INSERT INTO held_counts SELECT webhook_id, count(*) FROM deliveries WHERE state = 'held' GROUP BY webhook_id;

-- name: around: webhook_matches
INSERT INTO webhook_matches SELECT * FROM webhook_match_keys;

-- name: around: catch_ups
INSERT INTO catch_ups SELECT id, principal, 0, 0 FROM webhooks WHERE id < 'wh_a';

-- name: around: call_webhooks
INSERT INTO call_webhooks SELECT id, 'wh_crowd' FROM calls;

-- name: around: sealing_keys
INSERT INTO sealing_keys VALUES ('k', NULL, NULL);

-- name: mcp_sessions
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO mcp_sessions (id, principal, upstreams, endpoint, state, created_at, expires_at)
SELECT printf('session-%09d', n), iif(n % 10, 'alice', 'bob'), NULL, iif(n % 2, '/mcp', '/mcp/busy'), x'0101', :past, :future
FROM numbers;

-- Half of them have ended.
-- name: subscriptions
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO subscriptions (
    id, principal, event_name, arguments, error_profile, key_id, ttl_ms, created_at, refreshed_at, ended_at, "end"
)
SELECT printf('sub_%032x', n), iif(n % 10, 'alice', 'bob'), 'crowd', '{}', 'sketch', 'key_crowd', 1000, :past, :past,
    iif(n % 2, NULL, :future), iif(n % 2, NULL, 'expired')
FROM numbers;

-- name: few subscriptions
INSERT INTO subscriptions (
    id, principal, event_name, arguments, error_profile, key_id, ttl_ms, created_at, refreshed_at, ended_at, "end"
)
VALUES ('sub_rare', 'alice', 'rare', '{}', 'sketch', 'key_rare', 1000, :past, :past, NULL, NULL),
    ('sub_over', 'alice', '', '', 'sketch', 'key_rare', 1000, :past, :past, :past - 1, 'expired');

-- name: around: subscription_counts
INSERT INTO subscription_counts SELECT principal, count(*) FROM subscriptions WHERE ended_at IS NULL GROUP BY principal;

-- name: few mcp_sessions
INSERT INTO mcp_sessions (id, principal, upstreams, endpoint, state, created_at, expires_at)
VALUES ('session-rare', 'alice', NULL, '/mcp/rare', x'0101', :past, :future),
    ('session-over', 'alice', NULL, '/mcp/rare', x'0101', :past, :past);

-- name: sign_ins
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO sign_ins (id, secret_hash, principal, key_id, scopes, upstreams, created_at, expires_at)
SELECT printf('signin-%09d', n), printf('secret-%09d', n), iif(n % 10, 'alice', 'bob'), NULL, '[]', NULL, :past, :future
FROM numbers;

-- name: few sign_ins
INSERT INTO sign_ins (id, secret_hash, principal, key_id, scopes, upstreams, created_at, expires_at)
VALUES ('signin_rare', 'secret-rare', 'carol', NULL, '[]', NULL, :past, :future),
    ('signin_over', 'secret-over', 'carol', NULL, '[]', NULL, :past, :past);

-- name: portal_links
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO portal_links (
    id, secret_hash, principal, client_session_id, upstreams, created_by, key_id, created_at, expires_at
)
SELECT printf('link-%09d', n), printf('secret-%09d', n), iif(n % 10, 'alice', 'bob'), 's', NULL, 'alice', NULL, :past, :future
FROM numbers;

-- name: few portal_links
INSERT INTO portal_links (
    id, secret_hash, principal, client_session_id, upstreams, created_by, key_id, created_at, expires_at
)
VALUES ('link_rare', 'secret-rare', 'carol', 's', NULL, 'carol', NULL, :past, :future),
    ('link_over', 'secret-over', 'carol', 's', NULL, 'carol', NULL, :past, :past);

-- name: audit_entries
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO audit_entries (at, principal, key_id, surface, operation, target, owner, detail)
SELECT :past, 'alice', NULL, 'rest', 'remove_webhook', printf('wh-%09d', n), iif(n % 10, 'alice', 'bob'), NULL
FROM numbers;

-- name: few audit_entries
INSERT INTO audit_entries (at, principal, key_id, surface, operation, target, owner, detail)
VALUES (:past - 1, 'carol', NULL, 'rest', 'remove_webhook', 'wh_rare', 'carol', NULL);

-- name: upstream_logins
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO upstream_logins (id, state_hash, upstream, owner, principal, key_id, request, created_at, expires_at)
SELECT printf('login-%09d', n), printf('state-%09d', n), 'busy', '', iif(n % 10, 'alice', 'bob'), NULL, x'0101', :past, :future
FROM numbers;

-- name: few upstream_logins
INSERT INTO upstream_logins (id, state_hash, upstream, owner, principal, key_id, request, created_at, expires_at)
VALUES ('login_rare', 'state-rare', 'rare', 'carol', 'carol', NULL, x'0101', :past, :future),
    ('login_over', 'state-over', 'rare', 'carol', 'carol', NULL, x'0101', :past, :past);

-- name: upstream_tokens
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO upstream_tokens (
    id, upstream, owner, version, issuer, resource, scope, required_scope, obtained_at, expires_at, logged_in_by, secrets
)
SELECT printf('busy/owner-%09d', n), 'busy', printf('owner-%09d', n), 1, 'i', 'r', NULL, NULL, :past, NULL, 'bob', x'0101'
FROM numbers;

-- name: few upstream_tokens
INSERT INTO upstream_tokens (
    id, upstream, owner, version, issuer, resource, scope, required_scope, obtained_at, expires_at, logged_in_by, secrets
)
VALUES ('rare/alice', 'rare', 'alice', 1, 'i', 'r', NULL, NULL, :past, NULL, 'alice', x'0101'),
    ('rare/', 'rare', '', 1, 'i', 'r', NULL, NULL, :past, NULL, 'alice', x'0101');

-- name: owned_catalog
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO owned_catalog (owner, upstream, part, body, fetched_at)
SELECT printf('owner-%09d', n), 'busy', 'tools', '[]', :future FROM numbers;

-- name: few owned_catalog
INSERT INTO owned_catalog (owner, upstream, part, body, fetched_at)
VALUES ('alice', 'rare', 'tools', '[]', :past), ('alice', 'rare', 'profile', '{}', :past);

-- name: oauth_clients
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO oauth_clients (id, issuer, redirect_uri, client, created_at, expires_at)
SELECT printf('https://%09d.example https://us.example', n), printf('https://%09d.example', n), 'https://us.example', x'0101', :past,
    NULL
FROM numbers;

-- name: few oauth_clients
INSERT INTO oauth_clients (id, issuer, redirect_uri, client, created_at, expires_at)
VALUES ('https://rare.example https://us.example', 'https://rare.example', 'https://us.example', x'0101', :past, :future);

-- name: login_waits
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO login_waits (call_id, upstream, owner, tokens_version)
SELECT printf('call_%09d', n), 'busy', iif(n % 10, 'alice', 'bob'), n % 3 FROM numbers;

-- name: few login_waits
INSERT INTO login_waits (call_id, upstream, owner, tokens_version) VALUES ('call_rare', 'rare', 'alice', 1);

-- name: login_resumptions
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO login_resumptions (upstream, owner, tokens_version, worked_at)
SELECT 'busy', printf('owner-%09d', n), 1, :past + n FROM numbers;

-- name: login_checks
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO login_checks (upstream, owner, due_at, pause_seconds)
SELECT 'busy', printf('owner-%09d', n), :past + n, 60.0 FROM numbers;

-- name: few login_checks
INSERT INTO login_checks (upstream, owner, due_at, pause_seconds) VALUES ('rare', 'alice', :past, 60.0);

-- name: unused_logins
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO unused_logins (upstream, unused_since) SELECT printf('unused-%09d', n), :past + n FROM numbers;

-- name: call_resumes
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO call_resumes (call_id, resumed_at, surface, resumes)
SELECT printf('call_%09d', n), :past, 'rest_resume', 1 FROM numbers;

-- name: few call_resumes
INSERT INTO call_resumes (call_id, resumed_at, surface, resumes) VALUES ('call_rare', :past, 'rest_resume', 1);

-- name: insight_hours
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO insight_hours (principal, upstream, hour, counts)
SELECT iif(n % 10, 'alice', 'bob'), iif(n % 2, '', 'busy'), :future + n, '{"started": 1}' FROM numbers;

-- name: few insight_hours
INSERT INTO insight_hours (principal, upstream, hour, counts)
VALUES ('alice', '', :past, '{"started": 1}'), ('dave', 'rare', :past, '{}');

-- name: insight_positions
INSERT INTO insight_positions (id, positions) VALUES (1, '{}');

-- name: event_demands
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO event_demands (principal, event_name, topic, arguments, polled_until, gap_seq)
SELECT printf('other-%09d', n), 'git/pushed', '', '{}', :future, 0 FROM numbers;

-- name: ended event_demands
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO event_demands (principal, event_name, topic, arguments, polled_until, gap_seq)
SELECT printf('other-%09d', n), iif(n % 2, 'git/left', 'git/rare'), 't', '{}', :past, 0 FROM numbers;

-- name: demands for changes
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
INSERT INTO event_demands (principal, event_name, topic, arguments, polled_until, gap_seq)
SELECT printf('other-%09d', n), 'upstream.changed', iif(n % 2, 'crowd', 'left'), '{"upstream":"watched","uri":"book://crowd"}',
    iif(n % 2, :future, :past), 0
FROM numbers;

-- name: few event_demands
INSERT INTO event_demands (principal, event_name, topic, arguments, polled_until, gap_seq)
VALUES ('alice', 'git/pushed', '', '{}', :future, 0), ('bob', 'git/rare', 't', '{}', :future, 0);
