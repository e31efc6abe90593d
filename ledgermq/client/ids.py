"""Client ids. Source: ClientConfig.buildMQClientId (spec/wire.md 7.6)."""

from ledgermq.runtime.clock import Clock


def make_client_id(address: str, instance_name: str, process_id: int, clock: Clock) -> str:
    """Return ``address@instance_name``; an empty or ``DEFAULT`` name becomes pid#nanoseconds."""
    if instance_name in {"", "DEFAULT"}:
        instance_name = f"{process_id}#{clock.monotonic_ns()}"
    return f"{address}@{instance_name}"


def lasting_client_id(client_id: str) -> str:
    """Return the id under which a broadcasting consumer finds its offsets again after a restart.

    RocketMQ's keep the name DEFAULT, where other clients take one that is unique.
    """
    return client_id.partition("@")[0] + "@DEFAULT"
