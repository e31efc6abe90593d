"""Datadriven tests of the Raft core: each file of ``testdata/`` is a story, told and checked.

| command | what it does |
|---|---|
| add-nodes N sync=1 chunk=64 | a cluster of N; with ``sync``, entries count only once synced |
| set-log NODE terms=(1,1,2) | the log a node starts with |
| campaign NODE | an election timeout passes at it (and all others have forgotten their leader) |
| elect NODE | the same, with all messages delivered |
| tick NODE n=4 | ticks pass |
| propose NODE BODY... | a leader appends |
| deliver n=2 to=NODE kind=Append | the next messages arrive, those that fit |
| drop to=NODE kind=Append | messages are lost, all that fit |
| duplicate to=NODE | the next message that fits will arrive twice |
| stabilize | everything arrives |
| cut A B, heal | the link A to B loses everything, in this direction |
| sync NODE, crash NODE power=1, restart NODE | |
| unreachable NODE PEER | the connection broke |
| new-group N | a cluster of N whose directories are all empty: nobody has a past |
| join NODE | one more node starts, which is no member |
| add, promote, remove NODE TARGET | a leader changes the group |
| wipe NODE | it stops, and its directory is empty; restart it |
| trim NODE first=3 | its log begins with an entry from now on |
| messages, log, state | look |
"""

import os
from pathlib import Path

import pytest

from dledger.config import FlushDiskType
from dledger.core.configuration import ChangeKind
from dledger.core.messages import Message, describe_message
from dledger.core.model import HardState
from dledger.core.ready import describe_event
from tests.golden.datadriven import Command, run_file
from tests.unit.dledger.cluster import Cluster, MemoryStore

TESTDATA = Path(__file__).parent / "testdata"
REWRITE = os.environ.get("GOLDEN_REWRITE") == "1"


class Story:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self.cluster = Cluster(1)
        self.reported: dict[str, int] = {}

    def run(self, command: Command) -> str:
        method = getattr(self, "do_" + command.name.replace("-", "_"))
        output: list[str] = method(command) or []
        return "\n".join([*output, *self.new_events()])

    def new_events(self) -> list[str]:
        lines: list[str] = []
        for node_id, replica in self.cluster.replicas.items():
            start = self.reported.get(node_id, 0)
            lines += [f"  {node_id} {describe_event(event)}" for event in replica.events[start:]]
            self.reported[node_id] = len(replica.events)
        return lines

    def do_add_nodes(self, command: Command) -> None:
        sync = command.number("sync", 0)
        mode = FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH
        chunk = command.number("chunk", 1 << 18)
        self.cluster = Cluster(
            int(command.words[0]), flush_disk_type=mode, snapshot_chunk_bytes=chunk
        )

    def do_new_group(self, command: Command) -> None:
        self.cluster = Cluster(int(command.words[0]), is_new=True)

    def do_join(self, command: Command) -> None:
        self.cluster.join(command.words[0])

    def change(self, kind: ChangeKind, command: Command) -> list[str]:
        problem = self.cluster.change(command.words[0], kind, command.words[1])
        return [] if problem is None else [f"refused: {problem}"]

    def do_add(self, command: Command) -> list[str]:
        return self.change(ChangeKind.ADD_LEARNER, command)

    def do_promote(self, command: Command) -> list[str]:
        return self.change(ChangeKind.PROMOTE, command)

    def do_remove(self, command: Command) -> list[str]:
        return self.change(ChangeKind.REMOVE, command)

    def do_wipe(self, command: Command) -> None:
        self.cluster.wipe(command.words[0])

    def do_set_log(self, command: Command) -> list[str]:
        node_id = command.words[0]
        replica = self.cluster.replicas[node_id]
        terms = command.numbers("terms")
        replica.store = MemoryStore([(term, b"%d" % term) for term in terms])
        replica.state_file.saved = HardState(command.number("term", max(terms, default=0)))
        replica.start()
        return [self.log_line(node_id)]

    def do_campaign(self, command: Command) -> None:
        self.cluster.forget_leader()
        self.cluster.campaign(command.words[0])

    def do_elect(self, command: Command) -> None:
        self.cluster.elect(command.words[0])

    def do_tick(self, command: Command) -> None:
        self.cluster.tick(command.words[0], command.number("n", 1))

    def do_propose(self, command: Command) -> list[str]:
        node_id, *bodies = command.words
        done = self.cluster.propose(node_id, *(body.encode() for body in bodies))
        return [] if done else ["refused: not the leader"]

    def fits(self, command: Command, message: Message) -> bool:
        options = command.options
        return (
            options.get("to", message.receiver) == message.receiver
            and options.get("from", message.sender) == message.sender
            and options.get("kind", type(message).__name__) == type(message).__name__
        )

    def do_deliver(self, command: Command) -> list[str]:
        lines = []
        for _ in range(command.number("n", 1)):
            network = self.cluster.network
            number = next((i for i, m in enumerate(network) if self.fits(command, m)), None)
            if number is None:
                return [*lines, "nothing fits"]
            lines.append(describe_message(self.cluster.deliver(number)))
        return lines

    def do_drop(self, command: Command) -> list[str]:
        lost = [message for message in self.cluster.network if self.fits(command, message)]
        self.cluster.network = [m for m in self.cluster.network if m not in lost]
        return [f"lost {describe_message(message)}" for message in lost]

    def do_duplicate(self, command: Command) -> list[str]:
        message = next(m for m in self.cluster.network if self.fits(command, m))
        self.cluster.network.append(message)
        return [f"twice {describe_message(message)}"]

    def do_stabilize(self, command: Command) -> list[str]:
        lines = []
        while self.cluster.network:
            lines.append(describe_message(self.cluster.deliver()))
            assert len(lines) < 500, "messages never end"
        return lines

    def do_cut(self, command: Command) -> None:
        one, other = command.words
        self.cluster.cut.add((one, other))

    def do_isolate(self, command: Command) -> None:
        self.cluster.isolate(command.words[0])

    def do_heal(self, command: Command) -> None:
        self.cluster.heal()

    def do_sync(self, command: Command) -> None:
        self.cluster.sync(command.words[0])

    def do_crash(self, command: Command) -> None:
        self.cluster.crash(command.words[0], power=bool(command.number("power", 0)))

    def do_trim(self, command: Command) -> list[str]:
        node_id = command.words[0]
        self.cluster.trim(node_id, command.number("first", 0))
        snapshot = self.cluster.replicas[node_id].store.snapshot
        return [f"snapshot {snapshot.describe()}"]

    def do_restart(self, command: Command) -> list[str]:
        self.cluster.restart(command.words[0])
        return [self.log_line(command.words[0])]

    def do_unreachable(self, command: Command) -> None:
        node_id, peer = command.words
        self.cluster.do(node_id, lambda raft: raft.unreachable(peer))

    def do_messages(self, command: Command) -> list[str]:
        return [describe_message(message) for message in self.cluster.network]

    def do_log(self, command: Command) -> list[str]:
        return [self.log_line(node_id) for node_id in self.cluster.ids]

    def log_line(self, node_id: str) -> str:
        terms = " ".join(str(term) for term in self.cluster.terms(node_id))
        raft = self.cluster.replicas[node_id].raft
        commit = "down" if raft is None else f"commit={raft.state.log.commit_index}"
        return f"{node_id} {commit:10} {terms}"

    def do_state(self, command: Command) -> list[str]:
        lines = []
        for node_id in self.cluster.up:
            state = self.cluster[node_id].state
            lines.append(
                f"{node_id} {state.role.value} term={state.term} vote={state.voted_for}"
                f" leader={state.leader_id} last={state.log.last_index}/{state.log.last_term}"
                f" commit={state.log.commit_index}" + (" fresh" if state.fresh else "")
            )
            lines += [f"  {progress.describe()}" for progress in state.progress.values()]
        return lines


@pytest.mark.parametrize("path", sorted(TESTDATA.glob("*.txt")), ids=lambda path: path.stem)
def test_story(path):
    run_file(path, Story().run, rewrite=REWRITE)
