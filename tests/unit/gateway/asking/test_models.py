"""Which models a gateway lists."""

from __future__ import annotations

from app.gateway.asking.models import RECENT_S, ServedModels
from app.policy.agents import AgentRules
from app.policy.file import Policy
from app.wire.request import Request


def test_a_version_that_has_not_answered_for_long_is_listed_no_more() -> None:
    now = 1000.0
    models = ServedModels(["demo", "demo"], clock=lambda: now)
    models.answered("b@1")
    now += RECENT_S / 2
    models.answered("a@1")
    models.answered("demo@1")  # a version of a model that is listed
    assert models.names() == ["demo", "a@1", "b@1"]
    now += RECENT_S / 2 + 1
    assert models.names() == ["demo", "a@1"]
    now += RECENT_S
    assert models.names() == ["demo"]


def test_many_versions_leave_the_latest() -> None:
    models = ServedModels([], clock=lambda: 0.0)
    for number in range(1000):
        models.answered(str(number))
    assert "999" in models.names()
    assert len(models.names()) <= 100


def test_no_caller_sees_where_a_model_is() -> None:
    models = ServedModels(["/srv/models/secret-merger", "demo"])
    assert models.names() == ["default", "demo"]
    assert models.default == "default"
    assert "default" in models.names_of(None)
    assert ServedModels(["~/mine", "./here", "org/name"]).names() == ["default", "org/name"]


def test_what_workers_serve_counts_and_not_the_gateways_own_settings() -> None:
    models = ServedModels(["/srv/elsewhere"])
    models.answered("shop@1")
    models.serve(name for name in ("shop", "small", "shop"))
    assert models.names() == ["shop", "small"]
    assert models.default == "shop"
    assert "default" in models.names_of("shop")
    assert models.knows("shop@1"), "a version that has answered may be named"
    assert not models.knows("default")
    models.serve(())
    assert models.names() == ["default", "shop@1"], "no worker has stated any"


def test_a_name_is_unknown_only_once_workers_have_stated_theirs() -> None:
    models = ServedModels(["demo"], adapters=["tone"])
    assert not models.is_unknown("gpt-4"), "no worker has said what it serves"
    models.serve(["demo", "small"])
    for name in ("demo", "small", "small@1", "default", "auto", "tone"):
        assert not models.is_unknown(name)
    assert models.is_unknown("gpt-4")
    models.answered("gpt-4@7")
    assert not models.is_unknown("gpt-4@7"), "a version that has answered"


def test_an_agent_stands_in_place_of_a_model() -> None:
    models = ServedModels(["demo"])
    models.use(Policy(agents={"support": AgentRules()}))
    for served in ((), ("demo",)):
        models.serve(served)
        assert models.names()[-1] == "support"
    asked = models.by_agent(Request(request_id="r", user_id="ann", prompt="hi", model="support"))
    assert (asked.agent, asked.model) == ("support", None)
    models.serve(["support"])
    asked = models.by_agent(Request(request_id="r", user_id="ann", prompt="hi", model="support"))
    assert (asked.agent, asked.model) == (None, "support"), "a model is meant first"
