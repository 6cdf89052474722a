"""The training text of openjet-tiny: conversations drawn from small grammars.

Everything is a function of a seeded `random.Random`. Combinations (a tool's name, a program's
steps, the operands of a question) are split by a hash: held-out ones never occur in training.
"""
