"""Planted bugs in replicated tables, their snapshots, and services of the leader."""

from typing import Final

from mutants.planting import Mutant, patch

SERVICES: Final = (
    Mutant(
        name="service-outlives-its-term",
        breaks="A service of the leader runs on where another replica leads.",
        source="RocketMQ changeToSlave stops ScheduleMessageService and the transaction check.",
        plant=patch(
            "broker.leader.services:LeaderServices.stop",
            ("in begun.items():", "in {}.items():"),
        ),
    ),
    Mutant(
        name="snapshot-shares-offsets",
        breaks="Offsets that are applied while a snapshot is made get into it, or half of them.",
        source="A snapshot is of one entry: the Raft paper, 7.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable._own",
            ("elif any(", "elif False and any("),
        ),
    ),
)
"""Tests find them."""
