"""`openjet bench`: what agents feel, measured the same way on every engine. docs/bench.md defines
each number."""
