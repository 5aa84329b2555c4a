"""The API of OpenAI: chat completions and models."""
