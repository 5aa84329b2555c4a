"""`/v1/embeddings`: the embedder of the history."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Literal

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import replies, schema_of, shape
from app.gateway.asking.parameters import ignored_header
from app.gateway.asking.reading import read_parameters
from app.gateway.edge.errors import encoded, invalid, json_response
from app.gateway.edge.while_connected import while_connected
from models.files.checkpoint import is_folder

router = APIRouter(prefix="/v1", tags=["openai"])

_MOST_TEXTS = 2048


class EmbeddingsBody(msgspec.Struct, frozen=True, kw_only=True):
    """`input` may be token ids in OpenAI's API. Here they are refused: they are of a tokenizer of OpenAI's."""

    input: str | tuple[str | int | tuple[int, ...], ...]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
    user_id: str | None = None


@router.post(
    "/embeddings",
    openapi_extra=schema_of(EmbeddingsBody),
    responses=replies(shape(object="string", data="array", model="string", usage="object"), 404, 413, 415),
)
async def embed(request: Request) -> Response:
    """Vectors of texts, by the embedder of the history (`PARLEY_EMBEDDER`), whatever `model` says."""
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    body, ignored = await read_parameters(request, EmbeddingsBody)
    identity = caller.identity_of(body.user_id, body.user)
    given = [body.input] if isinstance(body.input, str) else list(body.input)
    texts = [one for one in given if isinstance(one, str)]
    if len(texts) < len(given):
        raise invalid(
            "input", "has token ids; send texts (LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))"
        )
    if not 1 <= len(texts) <= _MOST_TEXTS or not all(texts):
        raise invalid("input", f"must be 1-{_MOST_TEXTS} texts that are not empty")
    gateway.limits.admit_lookup(identity)
    vectors, tokens = await while_connected(request, gateway.searching.embed(identity.user_id, texts))
    if body.dimensions not in {None, vectors.shape[1]}:
        raise invalid("dimensions", f"the embedder has {vectors.shape[1]}")
    as_text = body.encoding_format == "base64"
    data = await encoded(
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector.tobytes()).decode() if as_text else vector.tolist(),
        }
        for index, vector in enumerate(vectors)
    )
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    embedder = gateway.settings.embedder
    name = Path(embedder).name if is_folder(embedder) else embedder
    return json_response(
        {"object": "list", "data": data, "model": name, "usage": usage}, headers=ignored_header(ignored)
    )
