"""Messages to tokens and tokens to messages. Nothing here knows about the engine."""
