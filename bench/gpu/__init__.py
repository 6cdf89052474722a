"""The sections of bench/gpu_check.py: what a GPU must show, each in a process of its own."""
