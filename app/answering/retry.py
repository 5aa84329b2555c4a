"""The model of an answer, and the second try after a failure of its own: the stage that every answer has.

A model that fails is tried once more, from the last token on, with the same seed. What comes after that, another model,
is for the routes (app/features/routing), whose stage stands around this one. A request whose model is not served ends
with an error that names those that are; an answer whose model has gone keeps the tokens that it has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from app.answering.pipeline import code_of
from app.answering.run import Over, RequestRefused, Run
from app.answering.stage import Decide, Ending, Feature, Round, Stage
from app.delivery.accepted import Former
from app.wire.error import ErrorCode
from app.wire.event import Plan
from app.wire.request import Request
from models.files.checkpoint import is_folder
from models.interface.generation import Failure, FinishReason
from models.served.registry import ModelRegistry, ServedModel

log = logging.getLogger(__name__)

MayName = Callable[[str, ServedModel], bool]


def has_model(former: Former, models: ModelRegistry) -> bool:
    """Whether a former owner has decided which model answers, and it is served here, or has begun to answer."""
    is_served = former.plan.model is None or models.find(former.plan.model) is not None
    return former.has_begun or (former.plan.is_made and is_served)


class Retry(Feature):
    """`may_name` says whether requests of a tenant may name a model; errors name no others."""

    def __init__(self, models: ModelRegistry, may_name: MayName = lambda _tenant, _model: True) -> None:
        self.models, self._may_name = models, may_name

    def stage(self, run: Run) -> Stage:
        return Retrying(run, self)

    def not_served(self, plan: Plan, request: Request) -> RequestRefused:
        """No model has the name that was asked for. A model that is named by its folder is offered as `default`."""
        name, tenant = plan.model or request.model, request.tenant or ""
        usable = (one for one in self.models if self._may_name(tenant, one))
        names = {name for one in usable for name in one.names if not is_folder(name)}
        offered = ", ".join(sorted(names)) or "none that this tenant may name"
        return RequestRefused(ErrorCode.MODEL_NOT_FOUND, f"model: there is no {name!r}; there are: {offered}")


class Retrying(Stage):
    """`_retried`: the version of the model that has had its second try."""

    def __init__(self, run: Run, retry: Retry) -> None:
        super().__init__(run)
        self._retry = retry
        self._retried: str | None = None

    def is_decided(self, former: Former) -> bool:
        return has_model(former, self._retry.models)

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        accepted = self.run.accepted
        if plan.at is None and accepted.at < accepted.record.timestamp:
            plan = msgspec.structs.replace(plan, at=accepted.at)
        served = self.run.model_by(plan)
        if served is None:
            raise self._retry.not_served(plan, accepted.request)
        try:
            return await then(plan)
        except RequestRefused:  # its error names the model that would have answered
            self.run.answer.write_as(served)
            raise

    async def round(self, then: Round) -> Ending:
        while True:
            model = self.run.model()
            if model is None:
                if self.run.answer.index or self.run.answer.rounds.rounds:  # the tokens that it wrote are kept
                    raise Over(self.run.ended_by(FinishReason.PARTIAL))
                raise self._retry.not_served(self.run.answer.plan, self.run.accepted.request)
            end = await then()
            if not isinstance(end, Failure) or not self._tries_again(end, model):
                return end

    def _tries_again(self, failure: Failure, model: ServedModel) -> bool:
        is_its_own = code_of(failure) is ErrorCode.ENGINE_ERROR
        if not is_its_own or self._retried == model.model_version or self.run.inflight.stop.reason is not None:
            return False
        self._retried = model.model_version
        log.warning("request %s is tried again after %s", self.run.key, ErrorCode.ENGINE_ERROR)
        return True
