#!/usr/bin/env bash
# Everything that a GPU must show, in one command without network: builds, checks, times, and writes
# bench/results/<card>.json. Needs nvcc, g++ and a python3 with numpy, cffi, gguf and pytest.
#
#     bench/gpu_check.sh [--seconds 440] [--skip-build] [--out FOLDER]
#
# A library built elsewhere (OPENJET_CUDA=1 python build.py) is used with --skip-build.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" -m bench.gpu_check "$@"
