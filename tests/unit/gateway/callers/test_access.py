"""Which credentials are accepted, and for which user: a table."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.requests import Request

from app.gateway.callers.access import Access, OpenHostError
from app.gateway.callers.identity import Identity
from app.gateway.callers.jwks import JwksUnavailableError
from app.gateway.callers.jwt import TokenSettingsError
from app.gateway.callers.keys import CallerRole, KeysError
from app.gateway.edge.errors import ApiError
from app.settings import Settings

SECRET = "a secret that has well over 32 bytes, and 64 for those who ask for so many"
OTHER = "another secret with well over 32 bytes, and 64 for those who ask for so many"
KEYS = {"gateway_api_keys": "key-of-nina-0123=nina, key-of-acme-0123=acme/omar, key-of-backend-01=acme/*"}
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def access(**values: Any) -> Access:
    return Access(Settings(_env_file=None, **values))


def request(
    authorization: str = "", query: str = "", host: str = "127.0.0.1", named: Sequence[tuple[str, bytes]] = ()
) -> Request:
    headers = [(b"host", host.encode()), (b"authorization", authorization.encode())]
    headers += [(name.lower().encode(), value) for name, value in named]
    return Request({
        "type": "http", "method": "GET", "path": "/", "scheme": "http", "server": ("127.0.0.1", 80),
        "query_string": query.encode(), "headers": headers,
    })  # fmt: skip


def token(secret: Any = SECRET, algorithm: str = "HS256", headers: dict[str, str] | None = None, **claims: Any) -> str:
    given = {"sub": "nina", "exp": time.time() + 60, "iss": "us", "aud": "parley", **claims}
    return jwt.encode({name: value for name, value in given.items() if value is not None}, secret, algorithm, headers)


def unsigned(header: dict[str, str]) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part(header)}.{part({'sub': 'nina', 'exp': time.time() + 60, 'iss': 'us', 'aud': 'parley'})}."


TOKENS = {"jwt_secret": SECRET, "jwt_issuer": "us", "jwt_audience": "parley"}
FORGED = token(OTHER)
TAMPERED = ".".join([token().split(".")[0], token(sub="omar").split(".")[1], token().split(".")[2]])

REFUSED = {
    "no credential": "",
    "another scheme": f"Basic {token()}",
    "no token": "Bearer ",
    "a word": "Bearer hello",
    "forged": f"Bearer {FORGED}",
    "another user's claims under a good signature": f"Bearer {TAMPERED}",
    "expired": f"Bearer {token(exp=time.time() - 60)}",
    "not valid yet": f"Bearer {token(nbf=time.time() + 3600)}",
    "without an expiry": f"Bearer {token(exp=None)}",
    "another issuer": f"Bearer {token(iss='them')}",
    "without an issuer": f"Bearer {token(iss=None)}",
    "another audience": f"Bearer {token(aud='shop')}",
    "without an audience": f"Bearer {token(aud=None)}",
    "without a subject": f"Bearer {token(sub=None)}",
    "an empty subject": f"Bearer {token(sub='')}",
    "a tenant with a slash": f"Bearer {token(tenant='acme/omar')}",
    "a tenant that is a number": f"Bearer {token(tenant=7)}",
    "an unknown role": f"Bearer {token(parley_role='root')}",
    "all tenants without a role": f"Bearer {token(tenant='*')}",
    "a role that is a list": f"Bearer {token(parley_role=['admin'])}",
    "alg none": f"Bearer {unsigned({'alg': 'none', 'typ': 'JWT'})}",
    "alg HS256 without a signature": f"Bearer {unsigned({'alg': 'HS256', 'typ': 'JWT'})}",
    "another alg of the same secret": f"Bearer {token(algorithm='HS512')}",
}


@pytest.mark.parametrize("authorization", REFUSED.values(), ids=REFUSED.keys())
async def test_a_bad_token_is_refused_also_beside_a_former_secret(authorization: str) -> None:
    settings = {**TOKENS, "jwt_secret": "another secret of well over 32 bytes", "jwt_former_secret": SECRET}
    with pytest.raises(ApiError) as refused:
        await access(**settings).identify(request(authorization))
    assert refused.value.status == 401


async def test_tokens_of_both_secrets_are_accepted_while_one_replaces_the_other() -> None:
    new = "another secret of well over 32 bytes"
    both = access(**{**TOKENS, "jwt_secret": new, "jwt_former_secret": SECRET})
    for secret in (SECRET, new):
        assert (await both.identify(request(f"Bearer {token(secret)}"))).user == "nina"
    with pytest.raises(ApiError, match="Signature verification failed"):
        await access(**{**TOKENS, "jwt_secret": new}).identify(request(f"Bearer {token()}"))


@pytest.mark.parametrize("authorization", REFUSED.values(), ids=REFUSED.keys())
async def test_a_bad_token_is_refused(authorization: str) -> None:
    with pytest.raises(ApiError) as refused:
        await access(**TOKENS).identify(request(authorization))
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("claims", "role", "tenant", "may"),
    [
        ({"parley_role": "admin"}, CallerRole.ADMIN, "acme", False),  # the claim of the tenant may just be missing
        ({"parley_role": "admin"}, CallerRole.ADMIN, "", True),
        ({"parley_role": "admin", "tenant": "*"}, CallerRole.ADMIN, "acme", True),
        ({"parley_role": "admin", "tenant": "*"}, CallerRole.ADMIN, "", True),
        ({"parley_role": "auditor", "tenant": "*"}, CallerRole.ADMIN, "acme", False),
        ({"parley_role": "admin", "tenant": "acme"}, CallerRole.ADMIN, "acme", True),
        ({"parley_role": "admin", "tenant": "acme"}, CallerRole.AUDITOR, "acme", True),
        ({"parley_role": "admin", "tenant": "acme"}, CallerRole.ADMIN, "rival", False),
        ({"parley_role": "admin", "tenant": "acme"}, CallerRole.ADMIN, "", False),
        ({"parley_role": "auditor", "tenant": "acme"}, CallerRole.AUDITOR, "acme", True),
        ({"parley_role": "auditor", "tenant": "acme"}, CallerRole.ADMIN, "acme", False),
        ({"parley_role": "auditor"}, CallerRole.AUDITOR, "rival", False),
        ({"parley_role": "user", "tenant": "acme"}, CallerRole.AUDITOR, "acme", False),
        ({"tenant": "acme"}, CallerRole.AUDITOR, "acme", False),
        ({"role": "admin"}, CallerRole.ADMIN, "", False),  # a claim of another program
    ],
)
async def test_a_role_holds_for_its_tenant(claims: dict[str, str], role: CallerRole, tenant: str, may: bool) -> None:
    caller = await access(**TOKENS).caller(request(f"Bearer {token(**claims)}"))
    if may:
        caller.require(role, tenant)
    else:
        with pytest.raises(ApiError) as refused:
            caller.require(role, tenant)
        assert refused.value.status == 403


async def test_a_key_has_no_role_and_a_developer_has_all() -> None:
    keys = await access(**KEYS).caller(request("Bearer key-of-backend-01"))
    with pytest.raises(ApiError):
        keys.require(CallerRole.AUDITOR, "acme")
    (await access().caller(request())).require(CallerRole.ADMIN, "acme")


@pytest.mark.parametrize(
    ("claims", "of"),
    [
        ({"desks": ["desk", "legal"], "tenant": "acme"}, {("acme", "desk"), ("acme", "legal")}),
        ({"desks": "desk", "parley_role": "approver"}, {("", "desk")}),
        (
            {"desks": ["desk"], "parley_role": "approver", "tenant": "*"},
            {(one, "desk") for one in ("", "acme", "rival")},
        ),
        ({"desks": [], "tenant": "acme", "parley_role": "admin"}, set()),
        ({"tenant": "acme"}, set()),
    ],
)
async def test_a_claim_names_desks_of_its_tenant(claims: dict[str, Any], of: set[tuple[str, str]]) -> None:
    caller = await access(**TOKENS).caller(request(f"Bearer {token(**claims)}"))
    tenants = ("", "acme", "rival")
    assert {(tenant, desk) for tenant in tenants for desk in ("desk", "legal") if caller.decides_in(tenant, desk)} == of
    assert {tenant for tenant in tenants if caller.decides_in(tenant)} == {tenant for tenant, _ in of}
    if claims.get("parley_role") != "admin":
        with pytest.raises(ApiError):
            caller.require(CallerRole.AUDITOR, "acme")


@pytest.mark.parametrize("desks", [7, [7], "", [""], "user", ["desk", "user"], "a desk", {"desk": 1}, ["d" * 65]])
async def test_a_claim_that_names_no_desk_is_refused(desks: object) -> None:
    with pytest.raises(ApiError) as refused:
        await access(**TOKENS).caller(request(f"Bearer {token(desks=desks)}"))
    assert refused.value.status == 401


async def test_an_approver_without_desks_is_refused() -> None:
    with pytest.raises(ApiError, match="needs the claim desks"):
        await access(**TOKENS).caller(request(f"Bearer {token(parley_role='approver')}"))


async def test_a_key_names_desks_behind_its_user() -> None:
    desk_and_omar = "key-of-the-desk-01=acme/*#approver:desk+legal, key-of-omar-0123=acme/omar#approver:desk"
    checked = access(gateway_api_keys=f"{desk_and_omar}, key-of-nina-0123=nina#1")
    desk = await checked.caller(request("Bearer key-of-the-desk-01"))
    assert desk.decides_in("acme", "legal")
    assert not desk.decides_in("rival", "desk")
    assert not desk.decides_in("", "desk")
    assert desk.decider() == Identity("acme", "acme")
    named = await checked.caller(request("Bearer key-of-the-desk-01", "user_id=ali"))
    assert named.decider() == Identity("ali", "acme")
    omar = await checked.caller(request("Bearer key-of-omar-0123"))
    assert (omar.decider(), omar.decides_in("acme", "desk")) == (Identity("omar", "acme"), True)
    nina = await checked.caller(request("Bearer key-of-nina-0123"))
    assert (nina.identity(), nina.decides_in("")) == (Identity("nina#1"), False)


@pytest.mark.parametrize(
    "who", ["acme/*#approver:", "acme/*#approver:a b", "omar#approver:user", "#approver:desk", "*#approver:d"]
)
def test_a_key_that_names_no_desk_is_refused(who: str) -> None:
    with pytest.raises(KeysError):
        access(gateway_api_keys=f"key-of-the-desk-01={who}")


async def test_a_good_token_is_its_subject() -> None:
    assert await access(**TOKENS).identify(request(f"Bearer {token()}")) == Identity("nina")
    assert await access(**TOKENS).identify(request(f"bearer {token(tenant='acme')}")) == Identity("nina", "acme")


@pytest.fixture
def jwks(tmp_path: Path) -> dict[str, str]:
    key = {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())), "kid": "one", "alg": "RS256"}
    place = tmp_path / "jwks.json"
    place.write_text(json.dumps({"keys": [key]}))
    return {"jwt_jwks": str(place), "jwt_issuer": "us", "jwt_audience": "parley"}


async def test_a_token_of_a_public_key_is_taken(jwks: dict[str, str]) -> None:
    good = token(RSA, "RS256", {"kid": "one"})
    assert await access(**jwks).identify(request(f"Bearer {good}")) == Identity("nina")


def _hmac_by_public_key() -> str:
    """What a checker takes that lets the token choose the algorithm."""
    signed = unsigned({"alg": "HS256", "typ": "JWT", "kid": "one"})
    mark = hmac.new(PUBLIC, signed.rstrip(".").encode(), hashlib.sha256).digest()
    return signed + base64.urlsafe_b64encode(mark).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(token(STRANGER, "RS256", {"kid": "one"}), id="signed by a stranger"),
        pytest.param(token(RSA, "RS256", {"kid": "two"}), id="an unknown key"),
        pytest.param(token(RSA, "RS512", {"kid": "one"}), id="another alg"),
        pytest.param(_hmac_by_public_key(), id="the public key as a shared secret"),
        pytest.param(unsigned({"alg": "none", "kid": "one"}), id="alg none"),
    ],
)
async def test_a_bad_token_of_a_public_key_is_refused(jwks: dict[str, str], bad: str) -> None:
    with pytest.raises(ApiError) as refused:
        await access(**jwks).identify(request(f"Bearer {bad}"))
    assert refused.value.status == 401


async def test_a_key_is_its_user_and_nobody_else() -> None:
    asks = access(**KEYS)
    assert await asks.identify(request("Bearer key-of-nina-0123")) == Identity("nina")
    assert await asks.identify(request("Bearer key-of-nina-0123", "user_id=nina")) == Identity("nina")
    assert await asks.identify(request("Bearer key-of-acme-0123")) == Identity("omar", "acme")
    for query, named in (("user_id=omar", None), ("", "omar"), ("user_id=nina", "omar"), ("user_id=acme/omar", None)):
        with pytest.raises(ApiError) as refused:
            await asks.identify(request("Bearer key-of-nina-0123", query), named)
        assert refused.value.status == 403


async def test_two_credentials_in_one_request_are_refused_unless_they_are_the_same() -> None:
    def twice(second: str) -> Request:
        return request("Bearer key-of-nina-0123", named=[("Authorization", second.encode())])

    assert (await access(**KEYS).identify(twice("Bearer key-of-nina-0123"))).user == "nina"
    with pytest.raises(ApiError, match="one header") as refused:
        await access(**KEYS).identify(twice("Bearer key-of-acme-0123"))
    assert refused.value.status == 401


async def test_a_tenants_backend_names_its_users_and_stays_within_the_tenant() -> None:
    asks = access(**KEYS)
    assert await asks.identify(request("Bearer key-of-backend-01"), "lena") == Identity("lena", "acme")
    with pytest.raises(ApiError) as refused:
        await asks.identify(request("Bearer key-of-backend-01"))
    assert refused.value.param == "user_id"


NAMED = {
    **KEYS,
    "gateway_user_header": "X-OpenWebUI-User-Id",
    "gateway_conversation_header": "X-OpenWebUI-Chat-Id",
}
NINA, BACKEND = "Bearer key-of-nina-0123", "Bearer key-of-backend-01"
LENA = [("X-OpenWebUI-User-Id", b"lena"), ("X-OpenWebUI-Chat-Id", b"c7")]


async def test_a_header_names_the_user_and_the_conversation_of_a_tenants_key() -> None:
    caller = await access(**NAMED).caller(request(BACKEND, named=LENA))
    assert caller.identity() == Identity("lena", "acme")
    assert caller.conversation == "c7"
    assert caller.identity("lena") == Identity("lena", "acme")
    assert caller.identity_of(None, "a label") == Identity("lena", "acme"), "`user` is a label beside the header"


async def test_a_users_own_key_has_its_user_whatever_headers_say() -> None:
    for key, own in (("key-of-nina-0123", Identity("nina")), ("key-of-acme-0123", Identity("omar", "acme"))):
        caller = await access(**NAMED, gateway_tenant_user="shared").caller(request(f"Bearer {key}", named=LENA))
        assert caller.identity() == own
        assert caller.conversation is None


@pytest.mark.parametrize("query", ["", "user_id=omar"])
async def test_a_body_or_a_query_that_names_another_user_than_the_header_is_refused(query: str) -> None:
    caller = await access(**NAMED).caller(request(BACKEND, query, named=LENA))
    with pytest.raises(ApiError) as refused:
        caller.identity_of("omar" if not query else "lena", None)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    "named", [[("X-OpenWebUI-User-Id", b"lena"), ("X-OpenWebUI-User-Id", b"omar")], [("X-OpenWebUI-User-Id", b"\xff")],
              [("X-OpenWebUI-User-Id", b"l" * 200)]]
)  # fmt: skip
async def test_a_header_that_names_nobody_for_certain_is_refused(named: list[tuple[str, bytes]]) -> None:
    with pytest.raises(ApiError) as refused:
        await access(**NAMED).identify(request(BACKEND, named=named))
    assert (refused.value.status, refused.value.param) == (400, NAMED["gateway_user_header"])


async def test_a_header_may_have_letters_of_every_language_and_a_long_conversation_is_refused() -> None:
    caller = await access(**NAMED).caller(request(BACKEND, named=[("x-openwebui-user-id", "zoë".encode())]))
    assert caller.identity() == Identity("zoë", "acme")
    assert caller.conversation is None
    caller = await access(**NAMED).caller(request(BACKEND, named=[("x-openwebui-chat-id", b"c" * 300)]))
    with pytest.raises(ApiError):
        _ = caller.conversation


async def test_without_the_header_a_tenants_key_has_the_user_of_the_settings_or_is_refused() -> None:
    with pytest.raises(ApiError, match="header X-OpenWebUI-User-Id") as refused:
        await access(**NAMED).identify(request(BACKEND))
    assert refused.value.param == "user_id"
    for named in ([], [("X-OpenWebUI-User-Id", b"")]):
        asks = access(**NAMED, gateway_tenant_user="shared")
        assert await asks.identify(request(BACKEND, named=named)) == Identity("shared", "acme")
    assert await asks.identify(request(BACKEND), "omar") == Identity("omar", "acme")


async def test_a_user_that_is_too_long_is_refused_under_the_name_that_its_sender_wrote() -> None:
    caller, long = await access().caller(request()), "x" * 129
    for names, param in (((long, None), "user_id"), ((None, long), "user")):
        with pytest.raises(ApiError, match=f"{param}: must have 1-128 characters"):
            caller.identity_of(*names)


async def test_headers_are_nothing_unless_a_setting_names_them() -> None:
    with pytest.raises(ApiError):
        await access(**KEYS).identify(request(BACKEND, named=LENA))
    assert (await access(**KEYS).caller(request(BACKEND, "user_id=omar", named=LENA))).conversation is None


async def test_without_keys_headers_name_users_too() -> None:
    headers = {name: value for name, value in NAMED.items() if name != "gateway_api_keys"}
    caller = await access(**headers).caller(request(named=LENA))
    assert (caller.identity().user_id, caller.conversation) == ("lena", "c7")


def test_no_two_identities_are_the_same_user_on_kafka() -> None:
    names = ["a", "/a", "a/b", "/a/b", "b", "a/"]
    identities = [Identity(user, tenant) for user in names for tenant in (None, "a", "b")]
    assert len({one.user_id for one in identities}) == len(identities)


async def test_without_keys_the_user_is_the_one_that_is_named() -> None:
    asks = access()
    assert asks.development
    assert (await asks.identify(request())).user_id == "dev"
    assert (await asks.identify(request("Bearer anything", "user_id=a/b"))).user_id == "a/b"
    assert (await asks.identify(request("Bearer anything"), "omar")).user_id == "omar"
    with pytest.raises(ApiError, match="user_id: the query and the body name different users"):
        await asks.identify(request("Bearer anything", "user_id=a/b"), "omar")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "::", "parley.example"])
def test_without_keys_no_other_address_is_bound(host: str) -> None:
    with pytest.raises(OpenHostError):
        access(gateway_host=host)
    assert not access(gateway_host=host, **KEYS).development


@pytest.mark.parametrize("keys", ["short=nina", "a-key-without-a-user", "a-key-0123456789=", "a-key-0123456789=*",
                                  "a-key-0123456789=/omar", "a-key-0123456789=a/b/c",
                                  "a-key-0123456789=nina, a-key-0123456789=omar"])  # fmt: skip
def test_a_wrong_key_setting_is_told_without_the_key(keys: str) -> None:
    with pytest.raises(KeysError) as wrong:
        access(gateway_api_keys=keys)
    assert "a-key" not in str(wrong.value)


@pytest.mark.parametrize(
    "values",
    [
        {"jwt_secret": "short"},
        {"jwt_secret": SECRET[:40], "jwt_algorithm": "HS512"},
        {"jwt_secret": SECRET, "jwt_former_secret": "short"},
        {"jwt_former_secret": SECRET},
        {"jwt_jwks": "keys.json", "jwt_former_secret": SECRET},
        {"jwt_secret": SECRET, "jwt_jwks": "keys.json"},
        {"jwt_secret": SECRET, "jwt_algorithm": "RS256"},
        {"jwt_jwks": "keys.json", "jwt_algorithm": "HS256"},
        {"jwt_jwks": "keys.json", "jwt_algorithm": "none"},
        {"jwt_jwks": "no-such-file.json"},
        {"jwt_jwks": "."},
        {"jwt_algorithm": "RS256"},
        {"jwt_algorithm": "FOO"},
        {"jwt_issuer": "us"},
        {"jwt_audience": "parley"},
    ],
)
def test_token_settings_that_would_be_unsafe_stop_the_start(values: dict[str, str]) -> None:
    with pytest.raises(TokenSettingsError) as wrong:
        access(**values)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "7", "{}", '{"keys": []}', '{"keys": [7]}', '{"keys": 7}', "\xff"]
)
def test_a_file_without_keys_stops_the_start(tmp_path: Path, text: str) -> None:
    place = tmp_path / "jwks.json"
    place.write_bytes(text.encode("latin-1"))
    with pytest.raises(TokenSettingsError, match="PARLEY_JWT_JWKS"):
        access(jwt_jwks=str(place))


async def test_where_the_keys_cannot_be_had_a_caller_is_told_so_and_not_the_place() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        place = f"http://127.0.0.1:{closed.getsockname()[1]}/keys"
    asks = access(jwt_jwks=place)
    with pytest.raises(JwksUnavailableError) as unready:
        await asks.check()
    with pytest.raises(ApiError) as refused:
        await asks.identify(request(f"Bearer {token(RSA, 'RS256', {'kid': 'one'})}"))
    assert refused.value.status == 503
    for message in (str(unready.value), refused.value.message):
        assert "127.0.0.1" not in message
        assert "Errno" not in message


async def test_who_needs_no_public_keys_is_ready() -> None:
    await access().check()
    await access(**TOKENS).check()
