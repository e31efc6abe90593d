"""Planted bugs of the controller: who may become master, and who may say who is in sync."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

CONTROLLER: Final = (
    Mutant(
        name="elected-though-not-in-sync",
        breaks="Any living replica may become master.",
        source="RocketMQ 5 with enableElectUncleanMaster=true; Kafka's unclean election.",
        plant=patch(
            "namesrv.controller.machine:_elect",
            ("if one in group.in_sync or not group.master_epoch", "if one"),
        ),
    ),
    Mutant(
        name="election-of-an-epoch-that-is-over",
        breaks="Two elections for the same death give two masters, one after the other.",
        source="A proposal that waited while another controller led.",
        plant=patch(
            "namesrv.controller.machine:_elect",
            ("if command.master_epoch != group.master_epoch:", "if False:"),
        ),
    ),
    Mutant(
        name="in-sync-set-by-a-former-master",
        breaks="A master of an earlier epoch changes the in-sync set.",
        source="RocketMQ 5 fences by the master epoch (CONTROLLER_FENCED_MASTER_EPOCH).",
        plant=patch(
            "namesrv.controller.machine:_alter",
            ("if command.master_epoch != group.master_epoch:", "if False:"),
        ),
    ),
    Mutant(
        name="in-sync-set-not-compared",
        breaks="A change of an in-sync set that the master does not know is taken.",
        source="A change that was sent twice, with another one between.",
        plant=patch(
            "namesrv.controller.machine:_alter",
            ("if command.in_sync_epoch != group.in_sync_epoch:", "if False:"),
        ),
    ),
    Mutant(
        name="started-broker-stays-master",
        breaks="A master that starts again is master at once, whatever its log has lost.",
        source="Kafka KIP-966: the last replica standing without its unflushed end.",
        plant=patch(
            "namesrv.controller.machine:_register",
            ("NO_MASTER if command.id == group.master else group.master", "group.master"),
        ),
    ),
    Mutant(
        name="last-in-sync-replica-removed",
        breaks="The last replica that has all that was acknowledged can be removed.",
        source="RocketMQ 5 cleanBrokerData.",
        plant=patch(
            "namesrv.controller.machine:_remove",
            ("if group.in_sync and not members:", "if False:"),
        ),
    ),
    Mutant(
        name="id-of-another-directory",
        breaks="A new directory takes the id of one that was in sync.",
        source="A wiped disk in the place of a replica; RocketMQ 5 registerCheckCode.",
        plant=patch(
            "namesrv.controller.machine:_apply_id",
            (
                "if known is not None and known.check_code == command.check_code:",
                "if known is not None:",
            ),
        ),
    ),
    Mutant(
        name="stranger-put-in-sync",
        breaks="A replica that nobody hears of is put into the in-sync set.",
        source="RocketMQ 5 CONTROLLER_BROKER_NOT_ALIVE.",
        plant=patch("namesrv.controller.machine:_alter", ("    if silent:", "    if False:")),
    ),
)
