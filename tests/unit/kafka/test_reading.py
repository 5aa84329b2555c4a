"""Fetches with batches that cannot be decoded: what stands around them is delivered, and they are, too."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import cramjam
import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.structs import ConsumerRecord, TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st

from app.kafka.batch import MOST_RECORDS
from app.kafka.codecs import Codec, CodecError, expand
from app.kafka.reading import MOST_BATCH_BYTES, FetchedBatches, ReadableRecords, UnreadableRecord, cause_of
from tests.unit.kafka.batches import NOW_MS, at_offset, batch, renamed, sealed, with_codec, with_last_offset_delta

AT = TopicPartition("requests", 3)


class Log:
    """A partition of these entries, fetched as aiokafka's fetcher does."""

    def __init__(self, *entries: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> None:
        self.entries = list(entries)
        self.aborted = aborted
        self.fetches = 0
        self.position = 0

    def fetch(self) -> list[ConsumerRecord[bytes, bytes]]:
        assert fetcher.PartitionRecords is ReadableRecords
        assert fetcher.MemoryRecords is FetchedBatches
        self.fetches += 1
        while len(self.entries) > 1 and struct.unpack_from(">q", self.entries[1])[0] <= self.position:
            del self.entries[0]  # a broker begins with the batch of the position
        fetched = fetcher.MemoryRecords(b"".join(self.entries))
        records = fetcher.PartitionRecords(AT, fetched, self.aborted, self.position, None, None, True, 1)
        found = list(records)
        self.position = records.next_fetch_offset
        return found

    def read(self, end: int) -> list[ConsumerRecord[bytes, bytes]]:
        found: list[ConsumerRecord[bytes, bytes]] = []
        while self.position < end:
            assert self.fetches < 50, "it never gets past this"
            found += self.fetch()
        return found


def outcomes(records: list[ConsumerRecord[bytes, bytes]]) -> dict[int, bytes | str]:
    """By offset: the value, or why there is none."""
    assert len({record.offset for record in records}) == len(records)
    return {record.offset: cause_of(record) or record.value or b"" for record in records}


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_read(codec: Codec) -> None:
    found = Log(batch([b"a" * 1000, b"b"], codec=codec)).read(2)
    assert [(record.offset, record.key, record.value, record.timestamp) for record in found] == [
        (0, b"nina", b"a" * 1000, NOW_MS),
        (1, b"nina", b"b", NOW_MS),
    ]


def test_snappy_without_the_blocks_of_the_java_library_is_read() -> None:
    plain = batch([b"a" * 1000, b"b"])
    assert outcomes(Log(with_codec(plain, 2, bytes(cramjam.snappy.compress_raw(plain[61:])))).read(2)) == {
        0: b"a" * 1000,
        1: b"b",
    }


@pytest.mark.parametrize("codec", Codec)
def test_a_header_name_that_is_not_utf8_spoils_one_record(codec: Codec) -> None:
    raw = renamed(batch([b"1", b"2", b"3"], headers=[("ZZ", b"x"), ("ok", None)]), b"\x04ZZ", b"\x04\xff\xfe")
    packed = with_codec(raw, codec, _packed(codec, raw[61:])) if codec else raw
    found = Log(packed, batch([b"behind"], base=3)).read(4)
    assert outcomes(found)[0] == r"it cannot be decoded: the header name '\\xff\\xfe' is not UTF-8"
    assert [record.value for record in found] == [b"1", b"2", b"3", b"behind"]
    assert found[0].key == b"nina"
    assert found[0].headers == (("\\xff\\xfe", b"x"), ("ok", None))
    assert [cause_of(record) for record in found[1:]] == ["", "", ""]
    assert found[1].headers == (("ZZ", b"x"), ("ok", None))


def _packed(codec: int, content: bytes) -> bytes:
    match codec:
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(content))
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(content))
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress(content))
        case _:
            return bytes(cramjam.zstd.compress(content))


BOMBS = {
    Codec.GZIP: lambda: bytes(cramjam.gzip.compress(b"\0" * (256 << 20))),
    Codec.LZ4: lambda: bytes(cramjam.lz4.compress(b"\0" * (256 << 20))),
    Codec.ZSTD: lambda: bytes(cramjam.zstd.compress(b"\0" * (256 << 20))),
    Codec.SNAPPY: lambda: b"\x80\x80\x80\x80\x04" + b"\xfe\x00\x00" * 1000,  # announces a GiB
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_bomb_is_never_expanded(codec: Codec) -> None:
    bomb = with_codec(batch([b"x"]), codec, BOMBS[codec]())
    log = Log(batch([b"before"]), at_offset(bomb, 1), batch([b"behind"], base=2))
    tracemalloc.start()
    try:
        found = log.read(3)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4 * MOST_BATCH_BYTES
    assert [record.value for record in found] == [b"before", found[1].value, b"behind"]
    assert "expands to more" in cause_of(found[1])
    assert found[1].value == at_offset(bomb, 1), "its raw bytes, as they were sent"


def test_many_batches_that_expand_a_lot_are_read_in_several_fetches() -> None:
    large = [batch([b"x" * (5 << 20)], base=offset, codec=4) for offset in range(8)]
    log = Log(*large)
    assert len(log.fetch()) == 4
    assert [len(record.value or b"") for record in log.read(8)] == [5 << 20] * 4


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_has_a_most_number_of_records_and_is_one_unreadable_record_beyond(codec: Codec) -> None:
    full = batch([b""] * MOST_RECORDS, codec=codec)
    assert len(Log(full).read(MOST_RECORDS)) == MOST_RECORDS
    crowd = batch([b""] * (MOST_RECORDS + 1), codec=codec)
    found = Log(crowd, batch([b"behind"], base=MOST_RECORDS + 1)).read(MOST_RECORDS + 2)
    assert [(record.offset, record.value) for record in found] == [
        (MOST_RECORDS, crowd),
        (MOST_RECORDS + 1, b"behind"),
    ]
    assert f"offsets 0 to {MOST_RECORDS}: its batch has more than 10000 records" in cause_of(found[0])


@pytest.mark.parametrize("count", [-1, 0, 1, 7, 2**31 - 1])
def test_a_batch_with_a_false_count_gives_no_more_than_that_either(count: int) -> None:
    many = 3 * MOST_RECORDS
    crowd = batch([b""] * many)
    crowd = sealed(crowd[:57] + struct.pack(">i", count) + crowd[61:])
    found = Log(crowd, batch([b"behind"], base=many)).read(many + 1)
    assert len(found) <= MOST_RECORDS + 2
    assert (found[-1].offset, found[-1].value) == (many, b"behind")
    assert "more than 10000 records" in cause_of(found[-2])


def test_a_crowded_batch_of_an_aborted_transaction_stays_aborted() -> None:
    crowd = batch([b""] * (MOST_RECORDS + 1), transactional=True)
    log = Log(crowd, batch([b"behind"], base=MOST_RECORDS + 1), aborted=((7, 0),))
    assert outcomes(log.read(MOST_RECORDS + 2)) == {MOST_RECORDS + 1: b"behind"}


def test_content_that_does_not_fit_its_codec_and_unknown_codecs_are_one_unreadable_record() -> None:
    for codec in (1, 2, 3, 4, 5, 7):
        broken = with_codec(batch([b"1", b"2", b"3"]), codec, b"rubbish that nothing has compressed")
        found = Log(broken, batch([b"behind"], base=3)).read(4)
        assert [record.offset for record in found] == [2, 3], codec
        assert "offsets 0 to 2" in cause_of(found[0])
        assert found[0].value == broken
        assert found[1].value == b"behind"


def test_a_damaged_batch_is_fetched_again_before_it_is_given_up() -> None:
    raw = batch([b"1", b"2"])
    damaged = raw[:-3] + b"?" + raw[-2:]
    log = Log(damaged, batch([b"behind"], base=2))
    assert log.fetch() == []
    assert log.fetch() == []
    log.entries = [raw]
    assert outcomes(log.fetch()) == {0: b"1", 1: b"2"}, "the bytes were damaged on their way"
    log = Log(damaged, batch([b"behind"], base=2))
    found = log.read(3)
    assert "checksum" in cause_of(found[0])
    assert (found[0].offset, found[1].value) == (1, b"behind")


@pytest.mark.parametrize("delta", [-5, 0, 2**31 - 1])
def test_an_implausible_last_offset_ends_before_the_next_batch(delta: int) -> None:
    broken = with_last_offset_delta(with_codec(batch([b"1", b"2"]), 5, b""), delta)
    found = Log(broken, batch([b"behind"], base=2)).read(3)
    assert [record.value for record in found][-1] == b"behind"
    assert sum(bool(cause_of(record)) for record in found) == 1


def test_a_rubbish_head_at_the_end_of_the_log_costs_the_smallest_step() -> None:
    raw = batch([b"1", b"2"])
    log = Log(raw[:16] + b"\x09" + raw[17:])
    found = log.fetch()
    assert [(record.offset, cause_of(record)) for record in found] == [
        (0, "it cannot be decoded: the message format 9 is not supported")
    ]
    assert log.position == 1


def test_an_entry_whose_length_is_rubbish_is_skipped() -> None:
    raw = batch([b"1"])
    for length in (-(2**31), -12, 0, 3, 2**31 - 1):
        log = Log(raw[:8] + struct.pack(">i", length) + raw[12:])
        found = log.read(1)
        assert len(found) == 1, length
        assert isinstance(found[0], UnreadableRecord) or found[0].value == b"1"


def test_a_batch_that_is_cut_off_at_the_end_of_a_fetch_is_left_to_the_next_one() -> None:
    log = Log(batch([b"1"]), batch([b"2"], base=1)[:-5])
    assert outcomes(log.fetch()) == {0: b"1"}
    assert log.position == 1


def test_a_malformed_record_has_its_own_bytes_and_the_others_are_delivered() -> None:
    raw = batch([b"first", b"second", b"third"])
    # The value's length of the second record is larger than the record.
    broken = renamed(raw, b"\x0csecond", b"\x12second")
    found = outcomes(Log(broken, batch([b"behind"], base=3)).read(4))
    assert found[0] == b"first"
    assert "malformed" in str(found[1])
    assert found[2] == b"third"
    assert found[3] == b"behind"


def test_a_record_that_is_read_again_warns_once_and_another_at_its_offset_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(at_ms: int) -> bytes:
        return renamed(batch([b"first", b"second"], timestamp=at_ms), b"\x0csecond", b"\x12second")

    for _ in range(3):
        Log(broken(NOW_MS - 5)).read(2)
    assert caplog.text.count("[3] offset 1 cannot be decoded") == 1
    Log(broken(NOW_MS - 4)).read(2)  # the topic was deleted and created
    assert caplog.text.count("[3] offset 1 cannot be decoded") == 2


def test_an_offset_outside_of_its_batch_moves_nobody() -> None:
    raw = batch([b"first", b"second"])
    second = raw.index(b"second")
    # length, attributes, time, offset, length of the key, key, length of the value, value
    offset = second - len(b"\x08nina\x0c") - 1
    for delta in (b"\x7e", b"\x7f"):  # 63 and -64
        broken = sealed(raw[:offset] + delta + raw[offset + 1 :])
        found = Log(broken, batch([b"behind"], base=2)).read(3)
        assert (found[0].value, found[-1].offset, found[-1].value) == (b"first", 2, b"behind"), delta


def test_a_rest_that_cannot_be_counted_is_one_record() -> None:
    raw = batch([b"first", b"second", b"third"])
    begin = raw.index(b"second")
    broken = sealed(raw[: begin - 11] + b"\xff" * 11 + raw[begin:])
    found = Log(broken, batch([b"behind"], base=3)).read(4)
    assert [record.offset for record in found][-2:] == [2, 3]
    assert found[0].value == b"first"
    assert b"third" in (found[-2].value or b"")


def test_records_of_an_aborted_transaction_stay_aborted() -> None:
    broken = with_codec(batch([b"1", b"2"], transactional=True), 5, b"")
    log = Log(broken, batch([b"behind"], base=2), aborted=((7, 0),))
    assert outcomes(log.read(3)) == {2: b"behind"}


def test_a_read_that_begins_within_a_batch_skips_what_stands_before() -> None:
    raw = renamed(batch([b"1", b"2", b"3"], headers=[("ZZ", b"x")]), b"\x04ZZ", b"\x04\xff\xfe")
    log = Log(raw)
    log.position = 1
    assert outcomes(log.read(3)) == {1: b"2", 2: b"3"}


def test_message_formats_0_and_1_are_read_unless_they_are_compressed() -> None:
    for magic in (0, 1):
        for codec in (0, 1):
            builder = LegacyRecordBatchBuilder(magic, codec, 9999)
            builder.append(0, NOW_MS, b"k", b"v")
            found = Log(bytes(builder.build())).read(1)
            assert bool(cause_of(found[0])) == bool(codec)
            assert codec or found[0].value == b"v"


def test_absurd_timestamps_are_delivered_as_they_are() -> None:
    assert [record.timestamp for record in Log(batch([b"1"], timestamp=-(10**15))).read(1)] == [-(10**15)]


@example(b"\x01", 23, True, Codec.NONE)
@given(st.binary(max_size=200), st.integers(0, 260), st.booleans(), st.sampled_from(Codec))
def test_whatever_stands_in_a_batch_it_is_passed(noise: bytes, at: int, is_sealed: bool, codec: Codec) -> None:
    raw = batch([b"first" * 5, b"second", b"third"], codec=codec, headers=[("h", b"v")])
    at = min(at, len(raw))
    damaged = raw[:at] + noise + raw[at + len(noise) :]
    damaged = damaged[:8] + struct.pack(">i", len(damaged) - 12) + damaged[12:]
    if is_sealed and len(damaged) > 61:
        damaged = sealed(damaged)
    behind = batch([b"behind"], base=3)
    log = Log(struct.pack(">q", 0) + damaged[8:], behind)
    found = log.read(4)
    assert found[-1].value == b"behind"
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))


@given(st.binary(max_size=300), st.integers(0, 7))
def test_expanding_rubbish_raises_one_kind_of_error(content: bytes, codec: int) -> None:
    with suppress(CodecError):
        assert len(expand(codec, content, 1 << 16)) <= 1 << 16
