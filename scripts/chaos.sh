#!/usr/bin/env bash
# Ten scenarios of faults on processes and three in containers, each judged by both checkers, one
# page for all; made for half an hour on two quiet cores. Usage: scripts/chaos.sh LEDGERMQ [options of ledgermq chaos campaign]
# Where no engine can be had the containers are left out, by name; the exit code is the campaign's.
set -euo pipefail
cd "$(dirname "$0")/.."
ledgermq=$1
shift

on_processes=(
    demo
    a-leader-whose-disk-hangs
    links-of-one-direction
    frames-twice-and-out-of-turn
    delayed-messages-due-as-leaders-die
    dead-letters-across-failovers
    clients-that-die
    wall-clocks-that-jump
    a-master-that-comes-and-goes
    anything-may-break
)
in_containers=(
    demo
    leaders-alone-again-and-again
    no-majority-for-a-while
)

campaign=("$ledgermq" chaos campaign --spark)
for name in "${on_processes[@]}"; do campaign+=(--scenario "$name"); done

if ! bash docker/engine.sh start; then
    printf '[chaos] left out, for the reason above, in containers: %s\n' "${in_containers[*]}"
    exec "${campaign[@]}" "$@"
fi
trap 'bash docker/engine.sh stop' EXIT
bash docker/build.sh
for name in "${in_containers[@]}"; do campaign+=(--in-containers "$name"); done
"${campaign[@]}" "$@"
