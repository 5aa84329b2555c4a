"""The records of all topics: their fields, their JSON and Protobuf forms, and their validation."""

from app.wire.audit import AuditAction, AuditRecord
from app.wire.codec import (
    Record,
    decode_audit,
    decode_comparison,
    decode_control,
    decode_erasure,
    decode_request,
    decode_token_event,
    decode_tool_call,
    decode_tool_result,
    decode_turn,
    decode_usage,
    encode,
)
from app.wire.codes import MEANING, ErrorCode
from app.wire.comparison import Comparison
from app.wire.control import Audit, Cancel, Control, Erase
from app.wire.dead_letters import Cause, cause_from, cause_of, dead_letter_headers
from app.wire.erasure import Erasure
from app.wire.error import WireError
from app.wire.event import ErrorInfo, EventType, Logprob, Notice, TokenEvent
from app.wire.headers import Headers, WireFormat, format_of
from app.wire.ids import new_request_id, partition_for, seed_for
from app.wire.request import DEFAULT_CONVERSATION, Message, Priority, Request, Role
from app.wire.response_format import FormatType, JsonSchema, ResponseFormat
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from app.wire.tools import (
    MessageToolCall,
    NamedTool,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
    ToolMode,
    ToolResult,
)
from app.wire.turn import Timing, Turn
from app.wire.usage import Latencies, UsageWindow
from app.wire.validation import prompt_bytes, validate_control, validate_request
from models.generation import FinishReason, Usage

__all__ = [
    "DEFAULT_CONVERSATION",
    "MEANING",
    "Audit",
    "AuditAction",
    "AuditRecord",
    "Cancel",
    "Cause",
    "Comparison",
    "Control",
    "Erase",
    "Erasure",
    "ErrorCode",
    "ErrorInfo",
    "EventType",
    "FinishReason",
    "FormatType",
    "Headers",
    "JsonSchema",
    "Latencies",
    "Logprob",
    "Message",
    "MessageToolCall",
    "NamedTool",
    "Notice",
    "Priority",
    "Record",
    "Request",
    "ResponseFormat",
    "Role",
    "Timing",
    "TokenEvent",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallRecord",
    "ToolChoice",
    "ToolMode",
    "ToolResult",
    "ToolResultRecord",
    "Turn",
    "Usage",
    "UsageWindow",
    "WireError",
    "WireFormat",
    "cause_from",
    "cause_of",
    "dead_letter_headers",
    "decode_audit",
    "decode_comparison",
    "decode_control",
    "decode_erasure",
    "decode_request",
    "decode_token_event",
    "decode_tool_call",
    "decode_tool_result",
    "decode_turn",
    "decode_usage",
    "encode",
    "format_of",
    "new_request_id",
    "partition_for",
    "prompt_bytes",
    "seed_for",
    "validate_control",
    "validate_request",
]
