"""Planted bugs behind attacks by hand: names that are dialled, folders, answers without end.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

ATTACKED: Final = (
    Mutant(
        name="name-left-to-the-dial",
        breaks="A dial looks up its name itself, and leaves the lookup behind when it is given up.",
        source="A learner with a host that nobody knows, added and removed: event=uncaught.",
        plant=patch(
            "ledgermq.remoting.transport.dialling:_addresses",
            ("ipaddress.ip_address(host)", "str(host)"),
        ),
    ),
    Mutant(
        name="link-lost-behind-the-handshake",
        breaks="Who hangs up right behind its answer to the greeting is never dialled again.",
        source="uvloop and asyncio give no usable socket of a connection that was reset.",
        plant=patch(
            "dledger.peers.link:Link._confirm",
            ("if transport.is_closing():", "if transport is None:"),
        ),
    ),
    Mutant(
        name="aborted-events-dropped",
        breaks="Where entries find no space, nobody hears what happened while they were written.",
        source="`dledger.membership` keeps links in step; `dledger.recorder` has every vote.",
        plant=patch(
            "dledger.core.raft:Raft.abort",
            ("state.messages, state.replies = [], []", "self._empty_outbox()"),
        ),
    ),
    Mutant(
        name="repair-stuck-behind-a-lost-chunk",
        breaks="A snapshot for damaged entries is not fetched any more once a chunk of it is lost.",
        source="Of this project: who asks anew is answered with the first chunk.",
        plant=patch("dledger.repair:Repairer._collect", ("elif message.offset:", "else:")),
    ),
    Mutant(
        name="repair-held-up-by-the-first",
        breaks="A damaged entry that no peer has keeps those behind it from being fetched.",
        source="docs/raft.md: damaged entries are fetched from a peer.",
        plant=patch("dledger.repair:Repairer._ask", ("self._passed = wanted[0]", "pass")),
    ),
    Mutant(
        name="snapshot-asked-for-in-haste",
        breaks="While a leader replaces its snapshot, it and who needs one talk without a pause.",
        source="Of this project: `SnapshotFiles.read` has nothing to give meanwhile.",
        plant=patch(
            "dledger.core.snapshot_sender:send_snapshot", ("if not data:", "if data is None:")
        ),
    ),
    Mutant(
        name="install-leaves-its-marker",
        breaks="An install that finds no space leaves word that its snapshot replaces the log.",
        source="Of this project: the same snapshot, of a trim, is then taken for one at a start.",
        plant=patch(
            "dledger.storage.snapshot_files:SnapshotFiles.install",
            ("self._is_marked = True", "pass"),
        ),
    ),
    Mutant(
        name="saves-not-looked-at",
        breaks="What stands where a save writes first is found by the first save, not by a start.",
        source="topics.json.bak as a folder: the broker served for 5 s, and ended.",
        plant=patch(
            "ledgermq.runtime.regular:check_replaced",
            ("for suffix in suffixes:", "for suffix in ():"),
        ),
    ),
    Mutant(
        name="client-reads-half-frames-without-end",
        breaks="A client reads half frames of any number of servers, however much they take.",
        source="A forged route to many brokers, each of which sends 15 MiB of an answer and stops.",
        plant=patch(
            "ledgermq.remoting.transport.client:RemotingClient.on_receive_bytes",
            ("slowest = slowest_sender(self._open.values())", "return"),
        ),
    ),
    Mutant(
        name="client-takes-any-number",
        breaks="A client takes numbers of more than 64 bits for offsets.",
        source="An offset of 9,999,999,999,999,999,999: no broker takes a pull from there.",
        plant=patch(
            "ledgermq.client.commands:number_in",
            ("if not -_INT64_MAX <= number <= _INT64_MAX:", "if False:"),
        ),
    ),
    Mutant(
        name="client-pulls-below-zero",
        breaks="A broker sends a consumer to an offset below 0.",
        source="A forged answer: RocketMQ's clients believe it, too.",
        plant=patch(
            "ledgermq.client.broker_api:BrokerApi.pull", ("if next_offset < 0:", "if False:")
        ),
    ),
    Mutant(
        name="group-of-any-size",
        breaks="A broker tells a consumer of any number of members of its group.",
        source="A ring of hashes of a million ids is made in one turn of the loop.",
        plant=patch(
            "ledgermq.client.broker_api:BrokerApi.consumer_ids",
            ("if len(ids) > MEMBERS_MAX:", "if False:"),
        ),
    ),
    Mutant(
        name="rebalances-without-pause",
        breaks="A consumer rebalances as often as a broker orders it to.",
        source="Orders (40) without end keep it as busy as it can be.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._rebalance_loop",
            ("if len(latest_ms) == latest_ms.maxlen:", "if False:"),
        ),
    ),
    Mutant(
        name="orders-for-a-terminal",
        breaks="What a message holds reaches the terminal of who looks at it as it came.",
        source="CWE-150: a body with ESC [2J clears the screen, ESC ]0; names the window.",
        plant=patch(
            "ledgermq.runtime.printable:_spelt",
            ("return orders.sub(", "return text or orders.sub("),
        ),
    ),
    Mutant(
        name="consumed-lines-forged",
        breaks="A body with a line end is printed as the lines of two messages.",
        source="A body of `paid`, a line end and `b/0 8 refunded`.",
        plant=patch(
            "ledgermq.runtime.printable:_spelt", ("return orders.sub(", "return _ORDERS.sub(")
        ),
    ),
    Mutant(
        name="tools-read-files-of-any-size",
        breaks="A tool reads a file of a directory that somebody gave us, however large it is.",
        source="A sparse raft_event/entries-1 of 8 GiB: raftEvents took as much memory.",
        plant=patch("store.offline.files:read_small", ("if file.size > limit:", "if False:")),
    ),
)
