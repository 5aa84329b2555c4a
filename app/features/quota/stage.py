"""Refuse what a tenant may not ask for, and charge for answers."""

from __future__ import annotations

from app.answering.run import RequestRefused, Run
from app.answering.stage import Decide, Feature, Stage
from app.delivery.accepted import Former
from app.delivery.inflight import Outcome
from app.features.host import WorkerParts
from app.features.quota.figures import TenantFigures
from app.features.quota.tenants import Tenants
from app.policy.file import Policy
from app.prices import PriceList
from app.wire.event import Plan
from app.wire.validation import charged_tenant
from models.served.registry import ModelRegistry, ServedModel


class Quota(Feature):
    def __init__(self, tenants: Tenants, prices: PriceList, models: ModelRegistry) -> None:
        self.tenants, self.prices, self.models = tenants, prices, models

    @classmethod
    def of(cls, host: WorkerParts) -> Quota:
        figures = TenantFigures(host.now, host.owned, host.settings.partitions)
        return cls(Tenants(host.policy, figures), host.prices, host.models)

    @property
    def is_on(self) -> bool:
        return self.tenants.is_on or self.prices.is_on

    def use(self, policy: Policy) -> None:
        self.tenants.use(policy)

    def stage(self, run: Run) -> Stage | None:
        return Charged(run, self) if self.is_on else None

    def may_name(self, tenant: str, model: ServedModel) -> bool:
        """Whether requests of the tenant may name the model."""
        return self.tenants.may_use(tenant, model.names, is_adapter=bool(model.adapter))


class Charged(Stage):
    def __init__(self, run: Run, quota: Quota) -> None:
        super().__init__(run)
        self._quota = quota

    def is_decided(self, former: Former) -> bool:
        """What a former owner has admitted stays admitted."""
        return former.is_admitted

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        request, tenants = self.run.accepted.request, self._quota.tenants
        model = self._quota.models.find(request.model)
        if model is None:  # routing refuses it
            return await then(plan)
        names = {*model.names, model.model_version}
        refusal = tenants.refusal(request, names, is_adapter=bool(model.adapter))
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        tenants.count(charged_tenant(request), self.run.accepted.record.partition, requests=1)
        return await then(plan)

    def committed(self, outcome: Outcome) -> None:
        """Note the cost of the answer, and count it for its tenant. What was computed for an error has no price, but it
        counts as tokens.
        """
        quota, end, plan = self._quota, outcome.end, outcome.answer.plan
        tenant, partition = charged_tenant(self.run.accepted.request), self.run.accepted.record.partition
        if end.usage is None:
            if outcome.spent:
                quota.tenants.count(tenant, partition, tokens=outcome.spent)
            return
        version, is_cached = end.model_version or "", plan.cached is not None
        default = quota.models.default.model_version if plan.route else version
        outcome.cost = quota.prices.cost(version, end.usage, is_cached=is_cached)
        outcome.saved = quota.prices.saved(version, end.usage, default=default, is_cached=is_cached)
        tokens = end.usage.prompt_tokens + end.usage.completion_tokens + outcome.spent
        quota.tenants.count(tenant, partition, tokens=tokens, cost=outcome.cost)
