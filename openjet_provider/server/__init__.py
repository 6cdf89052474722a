"""HTTP on one engine: OpenAI's and Anthropic's interfaces, health, metrics. Extra `server`.

Nothing here knows how tokens are computed: requests become `ChatRequest`s, deltas become events.
"""
