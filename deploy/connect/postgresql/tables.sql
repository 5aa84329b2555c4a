-- Parley's topics as tables. PostgreSQL 14 or later; running it again changes nothing.
--
-- The connector inserts each record, as the JSON that it is, into `ingest`. A trigger writes it to its table, so `ingest`
-- stays empty. The tables do not depend on how often a record arrives:
--
--   turns, audit   one row for each key; a repeated record writes the same row
--   usage          the revision with the highest number
--   erasures       the latest erasure of each user
--
-- An erasure deletes the user's turns, and turns from before it are refused when they arrive late. Kafka does not order
-- records of different topics, so both are needed. The transactions of several tasks run one after the other: without
-- that, a turn could be written while its erasure, not committed yet, looks for it.
--
-- A record that cannot be read goes to `rejected` with the reason, and the others go on.

begin;

create schema if not exists parley;

create table if not exists parley.turns (
    user_id text not null,
    request_id text not null,
    conversation_id text not null,
    tenant text,
    prompt text not null,
    answer text not null,
    finish_reason text not null,
    prompt_tokens bigint not null,
    completion_tokens bigint not null,
    cached_tokens bigint not null,
    model_version text not null,
    route text,
    experiment text,
    arm text,
    cached text,
    guard text[] not null,
    tool_calls jsonb not null,
    requested_at timestamptz not null,
    started_at timestamptz,
    first_token_at timestamptz,
    finished_at timestamptz,
    created_at timestamptz not null,
    primary key (user_id, request_id)
);
create index if not exists turns_created_at on parley.turns (created_at);
create index if not exists turns_conversation on parley.turns (user_id, conversation_id, created_at);

create table if not exists parley.erasures (
    user_id text not null,
    erased_at timestamptz not null,
    created_at timestamptz not null,
    conversation_id text
);
-- Of a user, or of one conversation of a user.
alter table parley.erasures add column if not exists conversation_id text;
alter table parley.erasures drop constraint if exists erasures_pkey;
create unique index if not exists erasures_about on parley.erasures (user_id, conversation_id) nulls not distinct;

create table if not exists parley.usage (
    window_start timestamptz not null,
    window_ms bigint not null,
    tenant text not null,
    model text not null,
    route text not null,
    experiment text not null,
    arm text not null,
    partition integer not null,
    revision bigint not null,
    requests bigint not null,
    late bigint not null,
    cached_requests bigint not null,
    prompt_tokens bigint not null,
    completion_tokens bigint not null,
    cached_tokens bigint not null,
    saved_tokens bigint not null,
    cost double precision not null,
    first_token_ms jsonb not null,
    duration_ms jsonb not null,
    created_at timestamptz not null,
    primary key (window_start, tenant, model, route, experiment, arm, partition)
);

create table if not exists parley.audit (
    kafka_partition integer not null,
    sequence bigint not null,
    kafka_offset bigint not null,
    previous text not null,
    action text not null,
    outcome text not null,
    user_id text not null,
    tenant text,
    request_id text,
    conversation_id text,
    model_version text,
    route text,
    experiment text,
    arm text,
    prompt_tokens bigint not null,
    completion_tokens bigint not null,
    categories text[] not null,
    prompt_sha256 text,
    answer_sha256 text,
    count bigint not null,
    at timestamptz not null,
    primary key (kafka_partition, kafka_offset)
);
create index if not exists audit_at on parley.audit (at);

create table if not exists parley.rejected (
    topic text not null,
    kafka_partition integer not null,
    kafka_offset bigint not null,
    reason text not null,
    record text,
    rejected_at timestamptz not null default now(),
    user_id text,
    primary key (topic, kafka_partition, kafka_offset)
);
alter table parley.rejected add column if not exists user_id text;
create index if not exists rejected_user on parley.rejected (user_id);

create table if not exists parley.ingest (
    topic text not null,
    kafka_partition integer not null,
    kafka_offset bigint not null,
    record text
);

-- PostgreSQL's text has no U+0000, which JSON has. It becomes U+FFFD; an escaped backslash before `u0000` is left alone.
create or replace function parley.json_of(record text) returns jsonb language sql immutable as $$
    select regexp_replace(record, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb
$$;

create or replace function parley.time_of(milliseconds jsonb) returns timestamptz language sql immutable as $$
    select case jsonb_typeof(milliseconds) when 'null' then null else to_timestamp(milliseconds::bigint / 1000.0) end
$$;

create or replace function parley.texts_of(list jsonb) returns text[] language sql immutable as $$
    select case jsonb_typeof(list)
        when 'array' then array(select jsonb_array_elements_text(list)) else '{}'::text[] end
$$;

create or replace function parley.save_turn(turn jsonb) returns void language plpgsql as $$
declare
    asked timestamptz := least(parley.time_of(turn #> '{timing,requested_at}'), parley.time_of(turn -> 'created_at'));
begin
    if exists (
        select from parley.erasures where user_id = turn ->> 'user_id' and erased_at >= asked
        and (conversation_id is null or conversation_id = turn ->> 'conversation_id')
    ) then
        return;
    end if;
    insert into parley.turns as old values (
        turn ->> 'user_id', turn ->> 'request_id', turn ->> 'conversation_id', turn ->> 'tenant',
        turn ->> 'prompt', turn ->> 'answer', turn ->> 'finish_reason',
        (turn #> '{usage,prompt_tokens}')::bigint, (turn #> '{usage,completion_tokens}')::bigint,
        coalesce((turn #>> '{usage,cached_tokens}')::bigint, 0),
        turn ->> 'model_version', turn ->> 'route', turn ->> 'experiment', turn ->> 'arm', turn ->> 'cached',
        parley.texts_of(turn -> 'guard'), coalesce(nullif(turn -> 'tool_calls', 'null'), '[]'),
        asked, parley.time_of(turn #> '{timing,started_at}'), parley.time_of(turn #> '{timing,first_token_at}'),
        parley.time_of(turn #> '{timing,finished_at}'), parley.time_of(turn -> 'created_at'))
    on conflict (user_id, request_id) do update set
        conversation_id = excluded.conversation_id, tenant = excluded.tenant, prompt = excluded.prompt,
        answer = excluded.answer, finish_reason = excluded.finish_reason, prompt_tokens = excluded.prompt_tokens,
        completion_tokens = excluded.completion_tokens, cached_tokens = excluded.cached_tokens,
        model_version = excluded.model_version, route = excluded.route, experiment = excluded.experiment,
        arm = excluded.arm, cached = excluded.cached, guard = excluded.guard, tool_calls = excluded.tool_calls,
        requested_at = excluded.requested_at, started_at = excluded.started_at,
        first_token_at = excluded.first_token_at, finished_at = excluded.finished_at, created_at = excluded.created_at
    where excluded.created_at > old.created_at;
end $$;

create or replace function parley.save_erasure(erasure jsonb) returns void language plpgsql as $$
declare
    erased timestamptz := parley.time_of(erasure -> 'erased_at');
    conversation text := erasure ->> 'conversation_id';
begin
    insert into parley.erasures as old
    values (erasure ->> 'user_id', erased, parley.time_of(erasure -> 'created_at'), conversation)
    on conflict (user_id, conversation_id) do update
    set erased_at = excluded.erased_at, created_at = excluded.created_at where excluded.erased_at > old.erased_at;
    delete from parley.turns where user_id = erasure ->> 'user_id' and requested_at <= erased
    and (conversation is null or conversation_id = conversation);
    update parley.rejected set record = null, reason = 'its user or a conversation was erased'
    where record is not null and parley.may_be_of(rejected, erasure ->> 'user_id');
end $$;

-- A record that cannot be read may be of each user whose id is in it, and of each conversation of that user.
create or replace function parley.may_be_of(one parley.rejected, erased text) returns boolean language sql as $$
    select coalesce(one.user_id = erased, strpos(one.record, erased) > 0)
$$;

create or replace function parley.user_of(record text) returns text language plpgsql as $$
begin
    return parley.json_of(record) ->> 'user_id';
exception when data_exception then
    return null;
end $$;

create or replace function parley.reject(one parley.rejected) returns void language plpgsql as $$
begin
    if exists (select from parley.erasures where parley.may_be_of(one, user_id)) then
        one.record := null;
        one.reason := 'its user or a conversation was erased';
    end if;
    insert into parley.rejected values (one.*) on conflict do nothing;
end $$;

create or replace function parley.save_usage(usage jsonb) returns void language sql as $$
    insert into parley.usage as old values (
        parley.time_of(usage -> 'window_start'), (usage -> 'window_ms')::bigint, usage ->> 'tenant', usage ->> 'model',
        coalesce(usage ->> 'route', ''), coalesce(usage ->> 'experiment', ''), coalesce(usage ->> 'arm', ''),
        (usage -> 'partition')::integer, (usage -> 'revision')::bigint, (usage -> 'requests')::bigint,
        (usage -> 'late')::bigint, (usage -> 'cached_requests')::bigint, (usage -> 'prompt_tokens')::bigint,
        (usage -> 'completion_tokens')::bigint, (usage -> 'cached_tokens')::bigint, (usage -> 'saved_tokens')::bigint,
        (usage -> 'cost')::double precision, usage -> 'first_token_ms', usage -> 'duration_ms',
        parley.time_of(usage -> 'created_at'))
    on conflict (window_start, tenant, model, route, experiment, arm, partition) do update set
        window_ms = excluded.window_ms, revision = excluded.revision, requests = excluded.requests,
        late = excluded.late, cached_requests = excluded.cached_requests, prompt_tokens = excluded.prompt_tokens,
        completion_tokens = excluded.completion_tokens, cached_tokens = excluded.cached_tokens,
        saved_tokens = excluded.saved_tokens, cost = excluded.cost, first_token_ms = excluded.first_token_ms,
        duration_ms = excluded.duration_ms, created_at = excluded.created_at
    where excluded.revision > old.revision
$$;

create or replace function parley.save_audit(kafka_partition integer, kafka_offset bigint, audit jsonb) returns void
language sql as $$
    insert into parley.audit values (
        $1, (audit -> 'sequence')::bigint, $2, audit ->> 'previous', audit ->> 'action', audit ->> 'outcome',
        audit ->> 'user_id', audit ->> 'tenant', audit ->> 'request_id', audit ->> 'conversation_id',
        audit ->> 'model_version', audit ->> 'route', audit ->> 'experiment', audit ->> 'arm',
        (audit -> 'prompt_tokens')::bigint, (audit -> 'completion_tokens')::bigint,
        parley.texts_of(audit -> 'categories'), audit ->> 'prompt_sha256', audit ->> 'answer_sha256',
        (audit -> 'count')::bigint, parley.time_of(audit -> 'at'))
    on conflict do nothing
$$;

create or replace function parley.await_turn() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtext('parley.ingest'));
    return null;
end $$;

-- The name of a topic may have a prefix (PARLEY_TOPIC_PREFIX).
create or replace function parley.save_record() returns trigger language plpgsql as $$
declare
    record jsonb;
begin
    record := parley.json_of(new.record);
    if record is null then
        raise exception 'the record has no value';
    end if;
    case substring(new.topic from '(turns|usage|audit|erasures)$')
        when 'turns' then perform parley.save_turn(record);
        when 'erasures' then perform parley.save_erasure(record);
        when 'usage' then perform parley.save_usage(record);
        when 'audit' then perform parley.save_audit(new.kafka_partition, new.kafka_offset, record);
        else raise exception 'no table is for this topic';
    end case;
    return null;
exception
    -- Anything else, such as a full disk, is no fault of the record: the connector tries again.
    when data_exception or integrity_constraint_violation or raise_exception or cannot_coerce then
        perform parley.reject(row(new.topic, new.kafka_partition, new.kafka_offset, sqlerrm, new.record, now(),
            parley.user_of(new.record)));
        return null;
end $$;

create or replace trigger await_turn before insert on parley.ingest for each statement execute function parley.await_turn();
create or replace trigger save_record before insert on parley.ingest for each row execute function parley.save_record();

commit;
