"""Divides the partitions among gateways, and carries their addresses.

The idea is `application.server` of Kafka Streams' interactive queries (KIP-67): a member's metadata has its address,
and the leader of the group sends the addresses of all owners with each assignment.

    user data of a member's metadata:    {"name": "http://10.0.0.5:8080", "port": "http://10.0.0.5:8085",
                                          "owned": [0, 3], "keys": ["5f0c..."]}
    user data of an assignment:          {"owners": {"http://10.0.0.5:8080": [0, 3], "http://10.0.0.6:8080": [1, 2]},
                                          "ports": {"http://10.0.0.5:8080": "http://10.0.0.5:8085", ...}, "fleets": 1}

Gateways without a common secret (trust.py) cannot ask each other. The leader therefore divides all partitions among
each fleet of gateways with a common one, as if the others were not there: during the change of a secret there are two
fleets, each reads every token, and each keeps the limits for itself.
"""

from __future__ import annotations

import logging
from collections import Counter
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
    """What a gateway reports when it joins: its name and the address of its port for gateways, the partitions that it
    owns so far, and which secrets it has (`Trust.key_ids`).
    """

    name: str
    port: str
    owned: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()


class Division(msgspec.Struct, frozen=True):
    """The partitions of each gateway of a fleet, where its port for gateways is, and how many fleets there are."""

    owners: Owners
    ports: dict[str, str]
    fleets: int = 1


class GatewayAssignor(AbstractPartitionAssignor):
    """One instance for each consumer; aiokafka calls the methods on whatever object it is given."""

    name = NAME

    def __init__(self, member: Member, on_division: Callable[[Division], None]) -> None:
        self._member = member
        self._on_division = on_division

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(_VERSION, list(topics), msgspec.json.encode(self._member))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        known = {name: _member(one.user_data) for name, one in members.items()}
        (topic,) = {topic for one in members.values() for topic in one.subscription}
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        fleets = fleets_of({name: one.keys for name, one in known.items()})
        assignments = {}
        for fleet in fleets:
            shares = divide(partitions, {name: known[name].owned for name in fleet})
            user_data = msgspec.json.encode(_division([(known[n], share) for n, share in shares.items()], len(fleets)))
            for name, share in shares.items():
                assignments[name] = ConsumerProtocolMemberAssignment(_VERSION, [(topic, share)], user_data)
        return assignments

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        division = msgspec.json.decode(assignment.user_data, type=Division)
        owned = tuple(division.owners.get(self._member.name, ()))
        self._member = msgspec.structs.replace(self._member, owned=owned)
        self._on_division(division)


def _member(user_data: bytes) -> Member:
    """A member that is not understood is in a fleet with others like it."""
    try:
        return msgspec.json.decode(user_data, type=Member)
    except (msgspec.DecodeError, UnicodeError):
        return Member("", "")


def _division(shares: Iterable[tuple[Member, list[int]]], fleets: int) -> Division:
    owners: Owners = {}
    ports = {}
    for member, share in shares:
        if member.name in owners:
            log.error("two gateways have PARLEY_GATEWAY_ADVERTISE=%s: each needs an address of its own", member.name)
        owners.setdefault(member.name, []).extend(share)
        ports[member.name] = member.port
    return Division(owners, ports, fleets)


def fleets_of(keys: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The members in groups, each with a key that all its members have; the largest group is formed first."""
    left = {name: set(one) or {""} for name, one in sorted(keys.items())}
    fleets = []
    while left:
        counts = Counter(key for one in left.values() for key in one)
        common = min(counts, key=lambda key: (-counts[key], key))
        fleets.append([name for name, one in left.items() if common in one])
        left = {name: one for name, one in left.items() if common not in one}
    return fleets


def divide(partitions: list[int], owned: Mapping[str, Iterable[int]]) -> dict[str, list[int]]:
    """Equal shares, give or take one; a member keeps what it owns as far as its share allows."""
    names = sorted(owned, key=lambda name: (-len(tuple(owned[name])), name))
    small, larger = divmod(len(partitions), len(names))
    most = {name: small + (number < larger) for number, name in enumerate(names)}
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
