#!/usr/bin/env bash
# Run the test suite, one process per core up to four, then the tests that torch.compile needs apart, and close with
# the suite's own last line.
# torch.compile fails under the jaxtyping hook, so those tests run in a second call without it.
set -uo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT

cores=$(getconf _NPROCESSORS_ONLN)
pytest -n $((cores < 4 ? cores : 4)) --dist loadfile "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
closing=$(grep -E '(passed|failed|error|no tests ran|deselected)' "$log" | tail -n 1)

if [ "$status" -eq 0 ] && [ "$#" -eq 0 ]; then
    echo "tests that use torch.compile:"
    JAXTYPING_DISABLE=1 pytest -m compile -q
    compile_status=$?
    # 5: no such test exists yet
    [ "$compile_status" -eq 5 ] || status=$compile_status
fi

echo "$closing"
exit "$status"
