#!/usr/bin/env bash
# Kills tail and the members under it, again and again, for so many minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
end=$(( $(date +%s) + ${1:-10} * 60 ))
export TAIL_KILLS=${TAIL_KILLS:-300}
round=0
go test -c -o bin/commands.test ./commands
cd commands
while [ "$(date +%s)" -lt "$end" ]; do
  round=$((round + 1))
  ../bin/commands.test -test.run 'TestTailKilled|TestTailMembersKilled|TestTailRestored' -test.count=1 -test.timeout 30m
  echo "round $round held"
done
