"""How openjet-tiny is made: generate text, train, evaluate, export (torch; not in the wheel)."""
