import sys
import time

from checks import BASE_URL, KEY, check, expect, run
from langchain_milvus import Milvus
from langchain_openai import OpenAIEmbeddings
from openai import OpenAI
from pymilvus import MilvusClient

URI = sys.argv[2]
WORDS = "What are your opening hours?"

ai = OpenAI(base_url=BASE_URL, api_key=KEY)


def indexed() -> MilvusClient:
    """Asks a question, and waits until its turn is in Milvus."""
    ai.chat.completions.create(model="demo", messages=[{"role": "user", "content": WORDS}], user="mia")
    client = MilvusClient(URI)
    for _ in range(300):
        if client.has_collection("turns") and client.query("turns", filter='user_id == "mia"', limit=1):
            return client
        time.sleep(0.2)
    raise AssertionError("the turn is not in Milvus")


@check("pymilvus")
def plain() -> None:
    client = indexed()
    vector = ai.embeddings.create(model="minilm", input="when is the shop open").data[0].embedding
    (hits,) = client.search(
        "turns", [vector], filter='user_id == "mia"', limit=2, anns_field="embedding", output_fields=["text", "role"]
    )
    expect({hit["entity"]["role"] for hit in hits} == {"user", "assistant"}, hits)


@check("langchain-milvus")
def langchain() -> None:
    embedder = OpenAIEmbeddings(model="minilm", base_url=BASE_URL, api_key=KEY, check_embedding_ctx_length=False)
    store = Milvus(
        embedding_function=embedder,
        connection_args={"uri": URI},
        collection_name="turns",
        vector_field="embedding",
        text_field="text",
        primary_field="turn_id",
    )
    found = store.similarity_search("when is the shop open", k=2, expr='user_id == "mia"')
    expect(any("8 am" in one.page_content for one in found), found)


run()
