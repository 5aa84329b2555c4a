import sys

from checks import BASE_URL, KEY, check, expect, run
from llama_index.core import VectorStoreIndex
from llama_index.core.vector_stores import ExactMatchFilter, MetadataFilters
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.vector_stores.milvus import MilvusVectorStore


@check("retriever over the history")
def retrieve() -> None:
    store = MilvusVectorStore(
        uri=sys.argv[2],
        collection_name="turns",
        dim=384,
        embedding_field="embedding",
        text_key="text",
        doc_id_field="turn_id",
        output_fields=["user_id", "role"],
        overwrite=False,
    )
    index = VectorStoreIndex.from_vector_store(
        store, embed_model=OpenAILikeEmbedding(model_name="minilm", api_base=BASE_URL, api_key=KEY)
    )
    of_mia = MetadataFilters(filters=[ExactMatchFilter(key="user_id", value="mia")])
    found = index.as_retriever(similarity_top_k=2, filters=of_mia).retrieve("when is the shop open")
    expect(any("8 am" in one.get_content() for one in found), found)


run()
