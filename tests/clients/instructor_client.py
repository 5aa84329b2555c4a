import instructor
from checks import BASE_URL, KEY, MODEL, check, expect, run
from openai import OpenAI
from pydantic import BaseModel


class Mood(BaseModel):
    happy: bool


def ask(mode: instructor.Mode) -> None:
    client = instructor.from_openai(OpenAI(base_url=BASE_URL, api_key=KEY), mode=mode)
    found = client.chat.completions.create(
        model=MODEL, response_model=Mood, messages=[{"role": "user", "content": "Are you happy?"}], max_retries=0
    )
    expect(isinstance(found, Mood), found)


@check("the default mode, tools")
def tools() -> None:
    ask(instructor.Mode.TOOLS)


@check("JSON schema")
def json_schema() -> None:
    ask(instructor.Mode.JSON_SCHEMA)


run()
