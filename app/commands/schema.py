"""`parley schema`: the schemas of the topics that other systems read."""

from __future__ import annotations

import json

import click

from app.wire.schemas import RECORDS, avro_schema, json_schema


@click.command()
@click.argument("topic", type=click.Choice(list(RECORDS)))
@click.option("--avro", is_flag=True, help="Avro instead of JSON Schema.")
@click.option("--registry", is_flag=True, help="As the body that a schema registry takes for the subject TOPIC-value.")
def schema(topic: str, *, avro: bool, registry: bool) -> None:
    """Print the schema of a topic's values, as JSON Schema."""
    described = avro_schema(topic) if avro else json_schema(topic)
    if registry:
        described = {"schemaType": "AVRO" if avro else "JSON", "schema": json.dumps(described)}
    click.echo(json.dumps(described, indent=2, ensure_ascii=False))
