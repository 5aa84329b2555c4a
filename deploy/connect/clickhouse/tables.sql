-- Parley's topics as ClickHouse tables, for ClickHouse's sink connector. A record that arrives again replaces itself when
-- parts are merged; the views `..._now` show each once. Times are Unix milliseconds, as in the records.

CREATE TABLE IF NOT EXISTS turns (
    user_id String,
    request_id String,
    conversation_id String,
    tenant Nullable(String),
    prompt String,
    answer String,
    finish_reason LowCardinality(String),
    usage Tuple(prompt_tokens Int64, completion_tokens Int64, cached_tokens Nullable(Int64)),
    timing Tuple(requested_at Nullable(Int64), started_at Nullable(Int64), first_token_at Nullable(Int64), finished_at Nullable(Int64)),
    model_version LowCardinality(String),
    route Nullable(String),
    experiment Nullable(String),
    arm Nullable(String),
    cached Nullable(String),
    guard Array(String),
    created_at Int64,
    requested_at Int64 ALIAS least(ifNull(tupleElement(timing, 'requested_at'), created_at), created_at),
    created DateTime64(3) ALIAS fromUnixTimestamp64Milli(created_at)
) ENGINE = ReplacingMergeTree(created_at) ORDER BY (user_id, request_id);

-- Of a user, or of one conversation of a user.
CREATE TABLE IF NOT EXISTS erasures (user_id String, erased_at Int64, created_at Int64, conversation_id Nullable(String))
ENGINE = ReplacingMergeTree(erased_at) ORDER BY (user_id, isNull(conversation_id), ifNull(conversation_id, ''));

-- What dashboards read: each turn once, and none that was erased, however late it came.
CREATE OR REPLACE VIEW turns_now AS
SELECT *, requested_at, created FROM turns FINAL
WHERE (user_id, request_id) NOT IN (
    SELECT user_id, request_id FROM turns INNER JOIN erasures USING user_id
    WHERE requested_at <= erased_at AND (isNull(erasures.conversation_id) OR erasures.conversation_id = turns.conversation_id)
);

CREATE TABLE IF NOT EXISTS usage (
    window_start Int64, window_ms Int64, tenant String, model LowCardinality(String), route String, experiment String, arm String,
    partition Int32, revision Int64, requests Int64, late Int64, cached_requests Int64, prompt_tokens Int64,
    completion_tokens Int64, cached_tokens Int64, saved_tokens Int64, cost Float64, created_at Int64
) ENGINE = ReplacingMergeTree(revision) ORDER BY (window_start, tenant, model, route, experiment, arm, partition);
