"""All settings, in one class; the table in docs/settings.md is generated from it.

Values come from the environment, then `.env`, then `.parley/local.env` of the working directory (which
`parley local up` writes), then the defaults.
"""

from __future__ import annotations

import warnings
from functools import lru_cache

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.settings import sources
from app.settings.conversation import ConversationSettings
from app.settings.gateway import GatewaySettings
from app.settings.kafka import COMPACTION_LAG_S, SEGMENT_S, KafkaSettings
from app.settings.model import ModelSettings
from app.settings.names import PREFIX, RENAMED, warnings_of
from app.settings.sources import SettingsError
from app.settings.worker import WorkerSettings


class UnknownSettingWarning(UserWarning):
    """A `PARLEY_` variable that is no setting: an old name, or a typo."""


class Settings(GatewaySettings, WorkerSettings, ConversationSettings, ModelSettings, KafkaSettings):
    """The settings, validated when they are read."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=sources.ENV_FILES,
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
    )

    @property
    def index_ttl(self) -> float:
        """Retention of rows in Milvus in seconds; 0: for ever."""
        return float(self.turns_retention_s if self.index_ttl_s is None else self.index_ttl_s)

    @property
    def ended_horizon_s(self) -> float:
        """How long ids of ended requests are kept: as long as their records can be read again."""
        return max(self.dedup_s, float(self.requests_retention_s))

    @property
    def erased_horizon_s(self) -> int | None:
        """How long erasure marks are kept: longer than anything that could bring erased text back.

        Kafka deletes whole segments, so a record may outlive its retention by the length of a segment. None means for
        ever, if Milvus keeps its rows for ever.
        """
        if not self.index_ttl:
            return None
        kept = (self.requests_retention_s, self.tokens_retention_s, self.turns_retention_s, int(self.index_ttl))
        return max(*kept, COMPACTION_LAG_S) + SEGMENT_S + 86400


SUBJECTS: tuple[tuple[str, type[BaseSettings]], ...] = (
    ("Kafka and topics", KafkaSettings),
    ("The model", ModelSettings),
    ("Conversations and the index", ConversationSettings),
    ("Workers, logs, traces, usage", WorkerSettings),
    ("Gateways", GatewaySettings),
)
"""The order of the table; each setting is of one subject."""
SECRETS = tuple(PREFIX + name.upper() for name, field in Settings.model_fields.items() if field.repr is False)
"""They are not shown, and each can be in a file."""
_KNOWN = frozenset(PREFIX + name.upper() for name in Settings.model_fields) | {name + sources.FILE for name in SECRETS}


def load_settings() -> Settings:
    """Read the settings. Raises `SettingsError` with one line; warns of old and unknown `PARLEY_` variables."""
    given = sources.values()
    values = sources.secrets_in_files(SECRETS, given)
    values |= {new: given[old] for old, new in RENAMED.items() if old in given and new not in given}
    try:
        read = Settings(**{name.removeprefix(PREFIX).lower(): value for name, value in values.items()})  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError(_one_line(error)) from None
    for line in unknown_settings():
        warnings.warn(line, UnknownSettingWarning, stacklevel=2)
    return read


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process."""
    return load_settings()


def unknown_settings() -> list[str]:
    """A line for each variable of Parley that is no setting of this release."""
    return list(warnings_of(sources.values(), _KNOWN))


def _one_line(error: ValidationError) -> str:
    def describe(path: tuple[int | str, ...], message: str, given: object) -> str:
        message = message.removeprefix("Value error, ")
        if not path:
            return message
        name = PREFIX + str(path[0]).upper()
        return f"{name}: {message}" if name in SECRETS else f"{name}={given!s}: {message}"

    return "; ".join(describe(e["loc"], e["msg"], e["input"]) for e in error.errors())
