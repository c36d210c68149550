#!/usr/bin/env bash
# Proves with LeRobot itself that it opens what we write, in an environment of its own (.venv-lerobot, about 0.5 GB, or
# what VENV_LEROBOT names). Safe to run twice. Not part of CI: LeRobot's pins exclude ours.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv="${VENV_LEROBOT:-.venv-lerobot}"
stamp="$venv/.installed"
if ! cmp -s tests/lerobot_check/requirements.txt "$stamp"; then
    echo "lerobot-check: installing LeRobot 0.4.4 and what it needs into $venv (about 0.5 GB with a CPU build of torch)"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet -r tests/lerobot_check/requirements.txt
    "$venv/bin/python" -m pip install --quiet --no-deps lerobot==0.4.4
    cp tests/lerobot_check/requirements.txt "$stamp"
fi
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 SVT_LOG=1
export PYTHONPATH="src:tests/lerobot_check/stub${PYTHONPATH:+:$PYTHONPATH}"
# The encoders talk on stderr, page after page: shown only where something failed.
log="$venv/check.log"
"$venv/bin/python" tests/lerobot_check/check.py "$@" 2>"$log" || { tail -n 30 "$log"; exit 1; }
