"""Who may ask: plug-ins that admit requests, Parley's own first, before a model, a judge or an index sees anything.

A request is asked about until something about it is in the log; what a former owner has admitted stays admitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley_client.plugins import Sender

from app.answering.run import Run
from app.answering.stage import Decide, Feature, Stage
from app.delivery.accepted import Former
from app.features.plugged import PluggedIn, Running
from app.wire.event import Plan


class Admitting(Feature):
    def __init__(self, plugged: PluggedIn) -> None:
        self._plugged = plugged

    @property
    def is_on(self) -> bool:
        return bool(self._plugged.admitting)

    def stage(self, run: Run) -> Stage | None:
        admitting = self._plugged.admitting
        return Admitted(run, admitting) if admitting else None


class Admitted(Stage):
    def __init__(self, run: Run, admitting: Sequence[Running]) -> None:
        super().__init__(run)
        self._admitting = admitting

    def is_decided(self, former: Former) -> bool:
        return former.is_admitted

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        """One after the other: a request that one refuses counts for none behind it."""
        request, at = self.run.accepted.request, self.run.accepted.at
        ids = request.request_id, request.user_id, request.conversation_id
        sender = Sender(*ids, request.tenant, at, request.model, request.priority)
        for one in self._admitting:
            await self.run.unless_stopped(one.admit(sender))
        return await then(plan)
