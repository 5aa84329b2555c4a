"""Why Kafka cannot be used, in one line with the remedy, and what a command ends with then."""

from __future__ import annotations

from app.process.process_end import ExitCode


class KafkaUnusableError(Exception):
    """Kafka cannot be used as it is; the message is one line with the remedy."""

    exit_code = ExitCode.FAILED


class KafkaAwayError(KafkaUnusableError):
    """Kafka does not answer, or not as expected; this may be temporary."""


class KafkaSetupError(KafkaUnusableError):
    """Settings, topics, rights or version do not fit: it stays so until somebody changes that."""

    exit_code = ExitCode.WRONG_USE
