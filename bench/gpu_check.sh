#!/usr/bin/env bash
# Everything that a GPU must show, in one command without network: builds, checks, times, and writes
# bench/results/<card>.json. Needs nvcc, g++ and a python3 with numpy, cffi, gguf and pytest.
#
#     bench/gpu_check.sh [--seconds 460] [--only SECTIONS] [--skip-build] [--out FOLDER]
#
# What was built elsewhere (OPENJET_CUDA=1 python build.py; python build.py --gpu-tests --out
# build/gpu-tests) is used with --skip-build.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" -m bench.gpu_check "$@"
