"""The assignment of partitions to workers."""

from __future__ import annotations

from typing import Any

from faust.assignor.client_assignment import ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor


class Assignor(PartitionAssignor):
    """Faust's assignor, adapted to static members.

    A worker that rejoins under its former name receives its previously encoded assignment. Faust asserts that it
    contains the current address of its web server. A worker whose host or port has changed would fail that assertion
    for ever and keep its partitions from all others.
    """

    _assigned_url: str | None = None

    @property
    def _url(self) -> Any:
        return self._assigned_url or self.app.conf.canonical_url

    def on_assignment(self, assignment: Any) -> None:
        self._assigned_url = ClientMetadata.loads(self._decompress(assignment.user_data)).url
        try:
            super().on_assignment(assignment)
        finally:
            self._assigned_url = None
