"""The live terminal view of a server, and agents to look at."""
