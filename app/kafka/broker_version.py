"""Whether a broker has what exactly-once needs: Kafka 4.0 or later, with the second version of its transactions.

A broker tells no version. Since Kafka 2.4 its answer to ApiVersions has the features that it supports, with the
highest level of each, and those that the cluster has in force. `transaction.version` came with 4.0. Its level 2 is in
force in new clusters; a cluster that was upgraded keeps its former level until somebody raises it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO

from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Schema, TaggedFields, UnsignedVarInt32

from app.kafka.cluster import Cluster
from app.kafka.connection import connected
from app.kafka.errors import KafkaSetupError

NEEDED = "4.0"
_TRANSACTIONS, _METADATA = "transaction.version", "metadata.version"
_TRANSACTIONS_LEVEL = 2
_SUPPORTED_TAG, _FINALIZED_TAG = 0, 2
_RELEASES = {8: "3.4", 11: "3.5", 14: "3.6", 19: "3.7", 20: "3.8", 21: "3.9"}
"""The highest `metadata.version` of the releases before 4.0."""


class _FeaturesV3(Response):
    API_KEY = 18
    API_VERSION = 3
    SCHEMA = Schema(
        ("error_code", Int16),
        (
            "api_versions",
            CompactArray(("api_key", Int16), ("min_version", Int16), ("max_version", Int16), ("tags", TaggedFields)),
        ),
        ("throttle_time_ms", Int32),
        ("tags", TaggedFields),
    )


class _FeaturesV4(Response):
    API_KEY = 18
    API_VERSION = 4
    SCHEMA = _FeaturesV3.SCHEMA


class _AskFeaturesV3(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 18
    API_VERSION = 3
    RESPONSE_TYPE = _FeaturesV3
    SCHEMA = Schema(
        ("client_software_name", CompactString("utf-8")),
        ("client_software_version", CompactString("utf-8")),
        ("tags", TaggedFields),
    )

    def parse_response_header(self, read_buffer: BytesIO | bytes) -> ResponseHeader_v0:
        return ResponseHeader_v0.decode(read_buffer)  # of this API alone, whatever its version


class _AskFeaturesV4(_AskFeaturesV3):
    """With the features whose lowest level is 0, as `transaction.version`."""

    API_VERSION = 4
    RESPONSE_TYPE = _FeaturesV4


class _FeaturesRequest(Request[_AskFeaturesV3 | _AskFeaturesV4]):
    API_KEY = 18

    def build(self, request_struct_class: type[_AskFeaturesV3 | _AskFeaturesV4]) -> _AskFeaturesV3 | _AskFeaturesV4:
        return request_struct_class("parley", "1", {})


@dataclass(frozen=True, slots=True)
class BrokerFeatures:
    """The highest level of each feature that the broker supports, and the levels in force."""

    supported: Mapping[str, int]
    finalized: Mapping[str, int]


async def check_version(cluster: Cluster) -> str | None:
    """A warning, if the cluster could keep more than it does. Raises `KafkaSetupError` if its brokers are too old, and
    the errors of `connected`.
    """
    async with connected(cluster) as connection:
        features = await _features_of(connection)
    if features is None or _TRANSACTIONS not in features.supported:
        raise KafkaSetupError(
            f"Kafka at {cluster} is {_release_of(features)}, and Parley needs {NEEDED} or later: older brokers "
            "can tear transactions (KIP-890). Upgrade it, or set PARLEY_BROKER to another one"
        )
    level = features.finalized.get(_TRANSACTIONS, 0)
    if level >= _TRANSACTIONS_LEVEL:
        return None
    return (
        f"Kafka at {cluster} has {_TRANSACTIONS} {level} in force, as before its upgrade: transactions are safer with "
        f"{_TRANSACTIONS_LEVEL} (`kafka-features.sh upgrade --feature {_TRANSACTIONS}={_TRANSACTIONS_LEVEL}`)"
    )


async def _features_of(connection: AIOKafkaConnection) -> BrokerFeatures | None:
    """None if the broker knows no features."""
    try:
        answer = await connection.send(_FeaturesRequest())
    except NotImplementedError:  # of aiokafka: the broker does not know this version of the request
        return None
    tags: Mapping[int, bytes] = answer.tags
    return BrokerFeatures(dict(_levels(tags.get(_SUPPORTED_TAG))), dict(_levels(tags.get(_FINALIZED_TAG))))


def _levels(field: bytes | None) -> Iterator[tuple[str, int]]:
    """Both lists have a name and two levels. The highest one is the second in one list, and the first in the other."""
    if field is None:
        return
    data, name = BytesIO(field), CompactString("utf-8")
    for _ in range(UnsignedVarInt32.decode(data) - 1):
        feature = name.decode(data)
        levels = Int16.decode(data), Int16.decode(data)
        TaggedFields.decode(data)
        yield feature or "", max(levels)


def _release_of(features: BrokerFeatures | None) -> str:
    level = 0 if features is None else features.supported.get(_METADATA, 0)
    release = next((name for highest, name in _RELEASES.items() if 0 < level <= highest), None)
    return f"older than {NEEDED} (it has no {_TRANSACTIONS})" if release is None else f"Kafka {release}"
