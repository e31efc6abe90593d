#!/usr/bin/env bash
# Makes sure that a Docker engine answers, starting one only where it may (root).
# Usage: docker/engine.sh start   install if needed, start if none answers, wait until ready
#        docker/engine.sh stop    stop the engine that "start" started; another one is left alone
#        docker/engine.sh status  say what there is; exit 0 if an engine answers
#        docker/engine.sh run COMMAND ...   start one if needed, run the command, stop what was started
# Exit codes: 0 an engine answers; 3 none does and none can be started here (the reason is printed);
# of "run" that of the command.
set -euo pipefail
state=${LEDGERMQ_ENGINE_STATE:-/var/run/ledgermq-engine}
log=$state/dockerd.log

say() { printf '[engine] %s\n' "$*"; }
answers() { timeout 10 docker version --format '{{.Server.Version}}' 2>/dev/null; }
have() { command -v "$1" >/dev/null 2>&1; }

install_packages() { # names of missing Debian packages in $@
    say "outside the checkout, as root: installing the Debian packages $*"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

missing_packages() {
    have dockerd || echo docker.io iptables
    have docker || echo docker.io
    have nft || echo nftables
    have nsenter || echo util-linux
    docker compose version >/dev/null 2>&1 || have docker-compose || echo docker-compose
}

start_engine() {
    local version packages
    version=$(answers || true)
    packages=$(missing_packages | tr ' ' '\n' | sort -u | tr '\n' ' ')
    if [ -n "$version" ]; then packages=${packages//docker.io /}; packages=${packages//iptables /}; fi
    if [ -n "${packages// /}" ]; then
        if [ "$(id -u)" != 0 ] || ! have apt-get; then
            say "not found here: $packages- install them (Debian: sudo apt-get install $packages) and run this again"
            return 3
        fi
        # shellcheck disable=SC2086  # a list of package names
        install_packages $packages
        version=$(answers || true)  # the package may have started the service
    fi
    if [ -n "$version" ]; then say "a Docker engine answers: $version"; return 0; fi
    if [ "$(id -u)" != 0 ]; then
        say "no Docker engine answers and only root may start one; start it (sudo systemctl start docker) or join the group docker"
        return 3
    fi
    mkdir -p "$state"
    say "starting dockerd (log: $log)"
    nohup dockerd --pidfile "$state/docker.pid" >"$log" 2>&1 </dev/null &
    echo $! >"$state/pid"
    for _ in $(seq 60); do
        version=$(answers || true)
        if [ -n "$version" ]; then say "ready: $version"; return 0; fi
        kill -0 "$(cat "$state/pid")" 2>/dev/null || break
        sleep 0.5
    done
    say "dockerd did not become ready; the end of its log:"
    tail -n 15 "$log"
    stop_engine
    return 3
}

stop_engine() {
    [ -f "$state/pid" ] || { return 0; }
    local pid
    pid=$(cat "$state/pid")
    rm -f "$state/pid"
    # Where that one ended by itself, its number may be another process's by now.
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then
        say "stopping dockerd, process $pid"
        kill -TERM "$pid"
        for _ in $(seq 60); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.5; done
        say "process $pid did not stop within 30 s"
    fi
}

stop_service() { # the engine that installing its package has started
    if have systemctl && systemctl stop docker.socket docker.service 2>/dev/null; then :
    elif have service; then service docker stop >/dev/null 2>&1 || true; fi
    if [ -z "$(answers || true)" ]; then say "stopped the Docker engine, which did not run before"
    else say "the Docker engine that was installed goes on running; stop it: service docker stop"; fi
}

run_with_engine() { # a command in $@: an engine that did not answer before does not answer after
    local before code=0
    before=$(answers || true)
    if [ -z "$before" ]; then trap 'leave_as_before' EXIT; fi
    start_engine || return $?
    "$@" || code=$?
    return "$code"
}

leave_as_before() {
    if [ -f "$state/pid" ]; then stop_engine
    elif [ -n "$(answers || true)" ]; then stop_service; fi
}

case ${1:-} in
    run) shift; run_with_engine "$@" ;;
    start) start_engine ;;
    stop) stop_engine ;;
    status) if v=$(answers) && [ -n "$v" ]; then say "answers: $v"; else say "none answers"; exit 3; fi ;;
    *) echo "usage: $0 start|stop|status|run COMMAND ..." >&2; exit 2 ;;
esac
