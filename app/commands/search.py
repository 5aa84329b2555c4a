"""`parley search`: search a user's history by meaning and by words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource
from rich.console import Console

from app.commands.hits_view import show
from app.commands.moment import Moment, check_period
from app.commands.terminal import WrongUseError, note, run, settings_of_terminal
from app.process.printable import printable, printable_json
from app.search.opening import open_vectors
from app.search.query import TurnSearch
from app.search.rows import TurnSide
from app.search.vector_store import Hit, IndexAwayError, IndexMismatchError, Query, SearchError, VectorStore
from app.settings import Settings
from models.embedder import EmbedderError, load_embedder

if TYPE_CHECKING:
    from models.embedder import Embedder


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("-u", "--user", help="Whose history.")
@click.option("-n", "--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Most hits to print.")
@click.option("-c", "--conversation", help="Only this conversation.")
@click.option("--role", type=click.Choice(["user", "assistant"]), help="Only texts of this role.")
@click.option("--since", type=Moment(), help="Only from this time on: 2024-05-01, 2024-05-01T09:30, or 36h ago.")
@click.option("--until", type=Moment(), help="Only before this time.")
@click.option("--include-replaced", is_flag=True, help="Also turns in whose place a later version stands.")
@click.option("--dense", is_flag=True, help="By meaning only, not by words.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def search(query: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Search a user's history for QUERY, best hits first.

    The rank combines meaning and words. NEAR is the similarity in meaning alone (the cosine); it orders the hits only
    with --dense.

    `parley search reindex`, without a user, fills a new collection from the topic `turns` with the embedder of
    PARLEY_EMBEDDER while the current one serves, and then replaces the current one.
    """
    if options["user"] is None:
        if query[0] != "reindex":
            raise WrongUseError("name the user with --user")
        context = click.get_current_context()
        named = [
            one for one in (*options, "as_json") if context.get_parameter_source(one) is ParameterSource.COMMANDLINE
        ]
        if query[1:] or named:
            raise WrongUseError(
                "`parley search reindex` takes no options and no words; to search, name the user with --user"
            )
        run(_reindex(settings_of_terminal()))
        return
    text = " ".join(query)
    if not text.strip():
        raise WrongUseError("QUERY is empty")
    check_period(options["since"], options["until"])
    hits = run(find(settings_of_terminal(), text, options), only_reads=True)
    if as_json:
        click.echo(printable_json(msgspec.json.encode(hits)))
    else:
        print_hits(hits, text, options["user"])


def print_hits(hits: list[Hit], text: str, user: str) -> None:
    """Print a table."""
    if not hits:
        note(f"nothing found in the history of {printable(user)}")
        return

    show(hits, text, Console())


async def _reindex(settings: Settings) -> None:
    async with _opened(settings) as (vectors, embedder):
        from app.commands.reindex import reindex

        await reindex(settings, vectors, embedder)


async def find(settings: Settings, text: str, options: dict[str, Any]) -> list[Hit]:
    """The hits, best first; raises `click.ClickException` with one line."""
    async with _opened(settings) as (vectors, embedder):
        return await TurnSearch(vectors, embedder).search(_query(text, options))


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[VectorStore, Embedder]]:
    """The index and the embedder. Their failures are raised as `click.ClickException`, with one line."""
    if not settings.has_index:
        raise WrongUseError("PARLEY_EMBEDDER=none indexes nothing; name an embedder")

    vectors = open_vectors(settings)
    try:
        await vectors.check()  # before the model is loaded
        embedder = await asyncio.to_thread(load_embedder, settings.embedder)
        try:
            yield vectors, embedder
        finally:
            await asyncio.to_thread(embedder.close)
    except IndexAwayError as error:
        raise click.ClickException(f"{error}; start it (`parley local up`) or set PARLEY_MILVUS_URI") from None
    except (IndexMismatchError, EmbedderError) as error:
        raise WrongUseError(str(error)) from None
    except SearchError as error:
        raise click.ClickException(str(error)) from None
    finally:
        await vectors.close()


def _query(text: str, options: dict[str, Any]) -> Query:
    role = options.get("role")
    return Query(
        user_id=options["user"],
        text=text,
        limit=options["limit"],
        conversation_id=options.get("conversation"),
        role=role and TurnSide(role),
        since=options.get("since"),
        until=options.get("until"),
        full_text=not options.get("dense"),
        include_replaced=bool(options.get("include_replaced")),
    )
