"""Divides the partitions among gateways, and carries their addresses.

The idea is `application.server` of Kafka Streams' interactive queries (KIP-67): a member's metadata has its address,
and the leader of the group sends the addresses of all owners with each assignment.

    user data of a member's metadata:    {"address": "http://10.0.0.5:8080", "owned": [0, 3]}
    user data of an assignment:          {"http://10.0.0.5:8080": [0, 3], "http://10.0.0.6:8080": [1, 2]}
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

log = logging.getLogger(__name__)

NAME = "parley-gateways"
_VERSION = 0

Owners = dict[str, list[int]]


class Member(msgspec.Struct, frozen=True):
    """What a gateway says when it joins: its address, and the partitions that it owns so far."""

    address: str
    owned: tuple[int, ...] = ()


class GatewayAssignor(AbstractPartitionAssignor):
    """One instance for each consumer; aiokafka calls the methods on whatever object it is given."""

    name = NAME

    def __init__(self, address: str, on_owners: Callable[[Owners], None]) -> None:
        self._address = address
        self._on_owners = on_owners
        self._owned: tuple[int, ...] = ()

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        user_data = msgspec.json.encode(Member(self._address, self._owned))
        return ConsumerProtocolMemberMetadata(_VERSION, list(topics), user_data)

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        known = {name: msgspec.json.decode(one.user_data, type=Member) for name, one in members.items()}
        (topic,) = {topic for one in members.values() for topic in one.subscription}
        shares = divide(sorted(cluster.partitions_for_topic(topic) or ()), {n: one.owned for n, one in known.items()})
        owners: Owners = {}
        for name, share in shares.items():
            if (address := known[name].address) in owners:
                log.error("two gateways have PARLEY_GATEWAY_ADVERTISE=%s: each needs an address of its own", address)
            owners.setdefault(address, []).extend(share)
        user_data = msgspec.json.encode(owners)
        return {
            name: ConsumerProtocolMemberAssignment(_VERSION, [(topic, share)], user_data)
            for name, share in shares.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        owners = msgspec.json.decode(assignment.user_data, type=Owners)
        self._owned = tuple(owners.get(self._address, ()))
        self._on_owners(owners)


def divide(partitions: list[int], owned: Mapping[str, Iterable[int]]) -> dict[str, list[int]]:
    """Equal shares, give or take one; a member keeps what it owns as far as its share allows."""
    names = sorted(owned, key=lambda name: (-len(tuple(owned[name])), name))
    small, larger = divmod(len(partitions), len(names))
    most = {name: small + (place < larger) for place, name in enumerate(names)}
    free, shares = set(partitions), dict[str, list[int]]()
    for name in names:
        shares[name] = [one for one in sorted(owned[name]) if one in free][: most[name]]
        free -= set(shares[name])
    rest = sorted(free)
    for name in names:
        while len(shares[name]) < most[name]:
            shares[name].append(rest.pop(0))
        shares[name].sort()
    return shares
