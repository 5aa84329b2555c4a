"""The topics that the policy's `intake` and `egress` name: created where they are missing, and left as they are."""

from __future__ import annotations

from app.kafka.clients import KafkaUnusableError
from app.kafka.topic_config import TopicConfigError
from app.kafka.topics import TopicsError, configure_topics, create_topics
from app.policy.file import Policy, PolicyError
from app.settings import Settings


async def create_foreign_topics(settings: Settings, policy: Policy) -> None:
    """Create those that are missing. Raises `PolicyError`."""
    if not policy.intake and not policy.egress:
        return
    try:
        await create_topics(settings, policy)
        await configure_topics(settings, policy)
    except (TopicsError, TopicConfigError, KafkaUnusableError) as error:
        raise PolicyError(f"policy {settings.policy}: {error}") from None
