"""What was recalled and is erased since: it leaves the plan."""

from __future__ import annotations

import msgspec

from app.wire.event import Plan
from tables.erasures import PartitionMarks


def without_erased(plan: Plan, marks: PartitionMarks, user_id: str) -> Plan:
    """The plan without the turns that an erasure of the user, or of their conversation, covers."""
    turns = plan.recalled or ()
    left = tuple(one for one in turns if not marks.of(user_id, one.conversation_id).cover(one.asked_at))
    return plan if len(left) == len(turns) else msgspec.structs.replace(plan, recalled=left)
