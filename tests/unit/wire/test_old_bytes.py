"""Records as they were written when the contract was new: topics are kept for days, and their readers are not ours
to change. A case here is never edited; new fields get new cases.
"""

from __future__ import annotations

from typing import Any

import pytest

from app.wire.codec import decode
from app.wire.control import Cancel, Control, Erase, EraseConversation
from app.wire.event import ErrorInfo, EventType, Logprob, Notice, TokenEvent
from app.wire.request import Message, Priority, Request, Role
from app.wire.response_format import FormatType, JsonSchema, ResponseFormat
from app.wire.turn import Timing, Turn
from models.interface.generation import FinishReason, Usage

PROTOBUF = (("content-type", b"application/x-protobuf"),)
TYPES = (Request, TokenEvent, Turn)

GOLDEN: list[tuple[Any, str, str]] = [
    (
        Request(request_id="r-1", user_id="ann", prompt="Where is order 17?"),
        '{"request_id":"r-1","user_id":"ann","prompt":"Where is order 17?"}',
        "0a03722d311203616e6e22125768657265206973206f726465722031373f",
    ),
    (
        Request(
            request_id="r-2",
            user_id="bö",
            messages=(Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Hi 👋")),
            conversation_id="c",
            max_tokens=5,
            temperature=0.0,
            top_p=0.5,
            top_k=7,
            seed=-3,
            stop=("END", "\n\n"),
            logprobs=True,
            top_logprobs=2,
            priority=Priority.BATCH,
            deadline_ms=1500,
            tenant="t",
            model="demo",
            metadata={"a": [1, 2.5, None, True, {"b": "c"}]},
        ),
        (
            '{"request_id":"r-2","user_id":"bö","messages":[{"role":"system","content":"Be brief."},{"role":'
            '"user","content":"Hi 👋"}],"conversation_id":"c","max_tokens":5,"temperature":0.0,"top_p":0.5,"t'
            'op_k":7,"seed":-3,"stop":["END","\\n\\n"],"logprobs":true,"top_logprobs":2,"priority":"batch","de'
            'adline_ms":1500,"tenant":"t","model":"demo","metadata":{"a":[1,2.5,null,true,{"b":"c"}]}}'
        ),
        (
            "0a03722d32120362c3b61a01632a130a0673797374656d120942652062726965662e2a0f0a04757365721207486920f"
            "09f918b300539000000000000000041000000000000e03f480750fdffffffffffffffff015a03454e445a020a0a6001"
            "68027205626174636878dc0b820101748a010464656d6f9201350a330a0161122e322c0a0911000000000000f03f0a0"
            "91100000000000004400a0208000a0220010a0c2a0a0a080a016212031a0163"
        ),
    ),
    (
        Request(
            request_id="r-3",
            user_id="ann",
            prompt="p",
            response_format=ResponseFormat(
                type=FormatType.JSON_SCHEMA,
                json_schema=JsonSchema(
                    schema_={"type": "object", "properties": {"b": {"type": "integer"}, "a": {"const": "ü"}}},
                    name="order",
                    strict=True,
                ),
            ),
            min_p=0.25,
            presence_penalty=1.0,
            frequency_penalty=-1.0,
            repetition_penalty=1.5,
            logit_bias={7: -2.5},
        ),
        (
            '{"request_id":"r-3","user_id":"ann","prompt":"p","response_format":{"type":"json_schema","json_schema":{'
            '"schema":{"type":"object","properties":{"b":{"type":"integer"},"a":{"const":"ü"}}},"name":"order",'
            '"strict":true}},"min_p":0.25,"presence_penalty":1.0,"frequency_penalty":-1.0,"repetition_penalty":1.5,'
            '"logit_bias":{"7":-2.5}}'
        ),
        (
            "0a03722d331203616e6e2201709a01640a0b6a736f6e5f736368656d6112550a4a7b2274797065223a226f626a656374222c2270726f"
            "70657274696573223a7b2262223a7b2274797065223a22696e7465676572227d2c2261223a7b22636f6e7374223a22c3bc227d7d7d12"
            "056f726465722001a101000000000000d03fa901000000000000f03fb101000000000000f0bfb901000000000000f83fc2010b080711"
            "00000000000004c0"
        ),
    ),
    (
        Request(
            request_id="r-4",
            user_id="ann",
            prompt="p",
            response_format=ResponseFormat(type=FormatType.CHOICES, choices=("yes", "no")),
        ),
        '{"request_id":"r-4","user_id":"ann","prompt":"p","response_format":{"type":"choices","choices":["yes","no"]}}',
        "0a03722d341203616e6e2201709a01120a0763686f69636573220379657322026e6f",
    ),
    (
        TokenEvent(
            type=EventType.TOKEN,
            request_id="r-1",
            user_id="ann",
            conversation_id="default",
            index=0,
            tokens=(17, 4),
            text=" it",
            epoch=0,
            timestamp=1760000000000,
            model_version="demo@1",
            prompt_digest="d41d",
            logprobs=(Logprob(17, " i", -0.25, (Logprob(9, " u", -1.5),)), Logprob(4, "t", -2.0)),
        ),
        (
            '{"type":"token","request_id":"r-1","user_id":"ann","conversation_id":"default","index":0,"token'
            's":[17,4],"text":" it","epoch":0,"timestamp":1760000000000,"model_version":"demo@1","logprobs":'
            '[{"token":17,"text":" i","logprob":-0.25,"top":[{"token":9,"text":" u","logprob":-1.5}]},{"toke'
            'n":4,"text":"t","logprob":-2.0}],"prompt_digest":"d41d"}'
        ),
        (
            "0a03722d311203616e6e1a0764656661756c742205746f6b656e2800320211043a032069744000488080b3c19c33520"
            "664656d6f40317a2008111202206919000000000000d0bf220f08091202207519000000000000f8bf7a0e0804120174"
            "1900000000000000c082010464343164"
        ),
    ),
    (
        TokenEvent(
            type=EventType.DONE,
            request_id="r-1",
            user_id="ann",
            conversation_id="default",
            index=2,
            epoch=9,
            timestamp=1760000000001,
            model_version="demo@1",
            text=".",
            finish_reason=FinishReason.STOP,
            usage=Usage(12, 2, 0),
        ),
        (
            '{"type":"done","request_id":"r-1","user_id":"ann","conversation_id":"default","index":2,"text":'
            '".","epoch":9,"timestamp":1760000000001,"model_version":"demo@1","finish_reason":"stop","usage"'
            ':{"prompt_tokens":12,"completion_tokens":2,"cached_tokens":0}}'
        ),
        (
            "0a03722d311203616e6e1a0764656661756c742204646f6e6528023a012e4009488180b3c19c33520664656d6f40315"
            "a0473746f706206080c10021800"
        ),
    ),
    (
        TokenEvent(
            type=EventType.ERROR,
            request_id="r-3",
            user_id="ann",
            conversation_id="default",
            index=0,
            epoch=9,
            timestamp=1760000000002,
            error=ErrorInfo("invalid_request", "prompt: is empty"),
        ),
        (
            '{"type":"error","request_id":"r-3","user_id":"ann","conversation_id":"default","index":0,"epoch'
            '":9,"timestamp":1760000000002,"error":{"code":"invalid_request","message":"prompt: is empty"}}'
        ),
        (
            "0a03722d331203616e6e1a0764656661756c7422056572726f7228004009488280b3c19c336a230a0f696e76616c696"
            "45f72657175657374121070726f6d70743a20697320656d707479"
        ),
    ),
    (
        TokenEvent(
            type=EventType.NOTICE, request_id="r-1", user_id="ann", notice=Notice("resumed", "A new worker goes on.")
        ),
        (
            '{"type":"notice","request_id":"r-1","user_id":"ann","notice":{"code":"resumed","message":"A new'
            ' worker goes on."}}'
        ),
        "0a03722d311203616e6e22066e6f7469636572200a07726573756d6564121541206e657720776f726b657220676f6573206f6e2e",
    ),
    (
        TokenEvent(type=EventType.FENCE, timestamp=1760000000003),
        '{"type":"fence","timestamp":1760000000003}',
        "220566656e6365488380b3c19c33",
    ),
    (
        Turn(
            request_id="r-1",
            user_id="ann",
            conversation_id="default",
            prompt="Where is order 17?",
            answer=" it.",
            finish_reason=FinishReason.PARTIAL,
            usage=Usage(12, 2, 8),
            model_version="demo@1",
            created_at=1760000000004,
            tenant=None,
            timing=Timing(requested_at=1, started_at=2, first_token_at=3, finished_at=4),
        ),
        (
            '{"request_id":"r-1","user_id":"ann","conversation_id":"default","prompt":"Where is order 17?","'
            'answer":" it.","finish_reason":"partial","usage":{"prompt_tokens":12,"completion_tokens":2,"cac'
            'hed_tokens":8},"model_version":"demo@1","created_at":1760000000004,"tenant":null,"timing":{"req'
            'uested_at":1,"started_at":2,"first_token_at":3,"finished_at":4}}'
        ),
        (
            "0a03722d311203616e6e1a0764656661756c7422125768657265206973206f726465722031373f2a042069742e32077"
            "061727469616c3a06080c10021808420664656d6f4031488480b3c19c335a080801100218032004"
        ),
    ),
    (
        Cancel(request_id="r-1", user_id="ann"),
        '{"type":"cancel","request_id":"r-1","user_id":"ann"}',
        "0a03722d311203616e6e1a0663616e63656c",
    ),
    (
        Erase(user_id="ann"),
        '{"type":"erase","user_id":"ann"}',
        "1203616e6e1a056572617365",
    ),
    (
        EraseConversation(user_id="ann", conversation_id="c"),
        '{"type":"erase_conversation","user_id":"ann","conversation_id":"c"}',
        "1203616e6e1a1265726173655f636f6e766572736174696f6e4a0163",
    ),
]


@pytest.mark.parametrize(("record", "json", "protobuf"), GOLDEN)
def test_old_bytes_are_still_read(record: Any, json: str, protobuf: str) -> None:
    record_type: Any = type(record) if isinstance(record, TYPES) else Control
    assert decode(record_type, json.encode()) == record
    assert decode(record_type, bytes.fromhex(protobuf), PROTOBUF) == record


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": b"application/x-protobuf"},
        [("other", None), ("Content-Type", b"application/x-protobuf; messageType=parley.wire.v1.TokenEvent")],
        (("content-type", b"application/protobuf"),),
    ],
)
def test_content_type_is_found_in_the_shapes_of_all_clients(headers: Any) -> None:
    assert decode(TokenEvent, bytes.fromhex("220566656e6365"), headers).type is EventType.FENCE


def test_unknown_fields_are_ignored() -> None:
    new = b'{"type":"erase","user_id":"ann","why":{"law":["gdpr"]}}'
    assert decode(Control, new) == Erase(user_id="ann")
    assert decode(Control, bytes.fromhex("1203616e6e") + b"\x1a\x05erase" + b"\xa2\x06\x03new", PROTOBUF) == Erase(
        user_id="ann"
    )


def test_options_of_openai_that_were_once_left_alone_are_still_read() -> None:
    value = (
        b'{"request_id":"r","user_id":"u","prompt":"p","response_format":{"type":"text"},"n":1,"presence_penalty":0}'
    )
    text = ResponseFormat(type=FormatType.TEXT)
    assert decode(Request, value) == Request(
        request_id="r", user_id="u", prompt="p", response_format=text, presence_penalty=0
    )
