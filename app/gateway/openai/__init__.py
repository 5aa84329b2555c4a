"""The API of OpenAI: chat completions, completions, responses, conversations, embeddings and models."""
