"""The vector store in Milvus: the connection, the collection, and what is asked of it. Imports pymilvus, slowly."""
