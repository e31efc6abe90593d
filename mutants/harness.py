"""Planted bugs of what surrounds the system: processes of a run, its figures, its ports, its words.

Tests find them, see ``HARNESS_BUGS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

HARNESS: Final = (
    Mutant(
        name="verdict-written-over",
        breaks="What a run holds reaches the terminal on which its verdict is shown as it is.",
        source="CWE-150: an id with ESC [1A in an imported history moves the cursor up.",
        plant=patch(
            "chaos.catalogue.console:_spelt", ("control is None and _ORDERS", "control and _ORDERS")
        ),
    ),
    Mutant(
        name="texts-counted-once",
        breaks="A text that all rows of a Parquet file name counts once.",
        source="20,000 rows of one text of 100 KB: some kilobytes of a file, 2 GB when it is read.",
        plant=patch(
            "chaos.inflated:_expanded_bytes",
            ("pc.take(sizes, values.indices)", "sizes"),
        ),
    ),
    Mutant(
        name="rates-taken-together",
        breaks="A rate counts as kept while all links together pass no more than it allows each.",
        source="chaos.nemesis.shaping: six times what two busy links of twelve may pass.",
        plant=patch(
            "chaos.nemesis.shaping:Shape._most_bytes",
            ("return max(", "return (lambda some: sum(some) // len(lanes))("),
        ),
    ),
    Mutant(
        name="name-server-gone-unseen",
        breaks="A name server that ended by itself is killed, and counts as ended by that.",
        source="A51, which nobody asked: its process was marked as ended by the harness.",
        plant=patch(
            "chaos.backends.local:LocalCluster.kill_name_server",
            ("self._ended += filter(None, [exit_line(child)])", "pass"),
        ),
    ),
    Mutant(
        name="link-shared-by-faults",
        breaks="A fault takes a link that another one has: its rule ends, and it counts.",
        source="Two faults under one `do`, of which the first lasted for a frame or two.",
        plant=patch("chaos.nemesis.links:LinkFault.probe_before", ("if ruled:", "if False:")),
    ),
    Mutant(
        name="processes-of-the-next-worker",
        breaks="A producer with many sends of unknown outcome sends as the next one does.",
        source="Two messages with one key: the loss of one of them is seen by nobody.",
        plant=patch(
            "chaos.interpreter:Interpreter._in_place_of",
            ("self._slots.first_process + self._slots.ids", "1 << 62"),
        ),
    ),
    Mutant(
        name="timeline-outlasted-by-a-step",
        breaks="A step of a timeline that is cut short goes on once every fault is lifted.",
        source="chaos.interpreter, which left what was in flight to itself.",
        plant=patch(
            "chaos.interpreter:Interpreter._end_all",
            ("for task in self._busy:", "for task in ():"),
            ("if self._busy:", "if False:"),
        ),
    ),
    Mutant(
        name="power-lost-without-a-difference",
        breaks="A loss of power counts though nothing was waiting for a sync: a kill, no more.",
        source="A fault that had no effect, and a verdict that rests on it.",
        plant=patch(
            "chaos.nemesis.power:PowerLoss.probe_after",
            (" and bool(self.witness.during)", ""),
        ),
    ),
    Mutant(
        name="name-server-back-without-brokers",
        breaks="A name server counts as back as soon as it answers, though it knows no broker yet.",
        source="A fault that ends before it is over: what comes next finds no routes.",
        plant=patch(
            "chaos.nemesis.servers:ServerFault._are_back",
            ("answers[name] or not self._known.get(name)", "True"),
        ),
    ),
    Mutant(
        name="member-removed-unseen",
        breaks="A removal counts though the member was a voter again while the fault was on.",
        source="A fault that had no effect, and a verdict that rests on it.",
        plant=patch(
            "chaos.nemesis.membership:Remove._see_it_is_out",
            ("bool(voters) and self._node not in voters", "True"),
        ),
    ),
    Mutant(
        name="bits-flip-by-the-kind-alone",
        breaks="Faults of disks draw the same in every run, whatever its seed.",
        source="chaos.nemesis.disk, before a fault had a stream of its own.",
        plant=patch(
            "chaos.nemesis.disk:DiskFault.apply",
            ("self._setting.stream.split(", "Stream(0, "),
        ),
    ),
    Mutant(
        name="queues-may-begin-anywhere",
        breaks="A run that trims no log is not asked whether its queues begin with 0.",
        source="A1 takes what lies before the begin that a broker tells for removed by retention.",
        plant=patch(
            "chaos.closing:keeps_all",
            ("scenario.mode == RAFT and not trims", "False"),
        ),
    ),
    Mutant(
        name="modules-of-the-user",
        breaks="Processes of a run import from the current directory before they import ours.",
        source="python -m: the current directory comes first on the path.",
        plant=patches(
            patch("chaos.backends.process:python", ('"-P", ', "")),
            patch("chaos.backends.process:environment", (', PYTHONSAFEPATH="1"', "")),
        ),
    ),
    Mutant(
        name="doctor-looks-only",
        breaks="The doctor reports a module as there because its file is.",
        source="Seen in this system: all was well, and Spark failed for want of distutils.",
        plant=patch("cli.doctor:_modules", ("IMPORT, *modules", '"", *modules')),
    ),
    Mutant(
        name="ports-only-found-free",
        breaks="A port is given that was free a moment ago; another run may be given it, too.",
        source="Seen in this system: tests that ran beside each other took each other's ports.",
        plant=patch("chaos.backends.ports:_take_one", (" or not _lock(port)", "")),
    ),
    Mutant(
        name="report-measures-otherwise",
        breaks="The report takes the longest gap of the seconds around a change of leader.",
        source="Seen in this system: 1,130 ms on the terminal, 1,973 ms in the report.",
        plant=patch(
            "chaos.report.data:_stall",
            ("np.searchsorted(acks, begin)", "np.searchsorted(acks, begin - 1.0)"),
            (
                "service_gap(acks[first:last].tolist(), begin, until)",
                "(float(np.diff(acks[first:last]).max()), 0.0)",
            ),
        ),
    ),
    Mutant(
        name="spark-without-a-word",
        breaks="A Spark job that reaches its limit is a job that failed; nobody says which limit.",
        source="Seen in this system: UNKNOWN after 240 s, with a pointer to an empty log.",
        plant=patch("chaos.verdict:check_with_spark", ("if code is None:", "if False:")),
    ),
    Mutant(
        name="job-shipped-without-its-data",
        breaks="Workers of a cluster get the job's modules, and not those that they import.",
        source="Seen where only the entry package is zipped for --py-files.",
        plant=patch(
            "spark.cluster:pack", ("for name in PACKAGES for", "for name in PACKAGES[:1] for")
        ),
    ),
    Mutant(
        name="watch-forgets-its-forgetting",
        breaks="A watch takes what it no longer keeps for what was never sent.",
        source="Bounded state without a word of what left it: every late redelivery is a phantom.",
        plant=patch(
            "spark.stream.memory:message_alarms", ('number <= F.col("floor")', "number < 0")
        ),
    ),
    Mutant(
        name="watch-believes-a-delivery-first",
        breaks="A watch judges a delivery before it has read all that was sent before it.",
        source="Files are read one after the other: a delivery may be read before its send.",
        plant=patch(
            "spark.stream.memory:message_alarms",
            ('known = f"came <= {marks.complete}"', 'known = "true"'),
        ),
    ),
    Mutant(
        name="watch-waits-for-the-dead",
        breaks="A watch goes on for ever over a run whose harness was killed.",
        source="A recording that does not grow says nothing of who writes it.",
        plant=patch(
            "spark.stream.place:life_of",
            ("Life.GOES_ON if held else Life.DEAD", "Life.GOES_ON if held or True else Life.DEAD"),
        ),
    ),
    Mutant(
        name="two-watches-of-one-run",
        breaks="A second watch removes what the first one reads, and writes over what it told.",
        source="Spark: one query for each checkpoint; nothing holds a directory by itself.",
        plant=patch("spark.stream.place:_lock", ("fcntl.LOCK_EX", "fcntl.LOCK_SH")),
    ),
    Mutant(
        name="watch-in-the-place-of-others",
        breaks="A watch writes to whatever lies under a name that anybody can guess.",
        source="CWE-377: a folder for temporary files that somebody else has made before.",
        plant=patch(
            "spark.stream.place:_opened",
            ("not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid()", "about is None"),
        ),
    ),
    Mutant(
        name="watch-hears-no-calls",
        breaks="A watch takes orderly groups for concurrent ones, and sees no calls of theirs.",
        source="run.json, modes: a group is orderly by its word alone.",
        plant=patch("spark.stream.feed:Feed._of_delivery", ("in self._orderly", "in ()")),
    ),
    Mutant(
        name="stopped-by-what-is-excused",
        breaks="A run whose faults may take messages ends at the first place that was given twice.",
        source="docs/chaos.md, Contracts: what the faults explain is valid, with exit code 3.",
        plant=patch("chaos.watch:Watch._look", (' and not line["excusable"]', "")),
    ),
    Mutant(
        name="silent-consumer",
        breaks="A consumer that no name server answers waits for ever and says nothing.",
        source="Seen in this system: ledgermq consume ended with code 1 and no word.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember.wait_joined",
            ("raise error from None", "return"),
        ),
    ),
    Mutant(
        name="witness-believes-the-proxy",
        breaks="The witness of a fault of links takes the command for the deed.",
        source="spec/proof.md 2: faults that did nothing were counted as coverage.",
        plant=patch(
            "chaos.nemesis.shaping:Shape.undo",
            ("counted > 0 and was_refused and self._proof.also(seen)", "True"),
        ),
    ),
    Mutant(
        name="witness-believes-the-disk",
        breaks="The witness of a fault of a disk looks at the process only, not at the files.",
        source="spec/proof.md 2: faults that did nothing were counted as coverage.",
        plant=patch(
            "chaos.nemesis.disk:DiskFault.probe_after", (" and bool(self.witness.during)", "")
        ),
    ),
    Mutant(
        name="witness-believes-the-library",
        breaks="The witness of a fault of disk or clock takes the command for the deed.",
        source="spec/proof.md 2: faults that did nothing were counted as coverage.",
        plant=patch("chaos.nemesis.shimmed:Shimmed.undo", ("self.witness.during > 0", "True")),
    ),
    Mutant(
        name="unread-columns-unchecked",
        breaks="A history whose rows name no run, or a role that is no word, is judged.",
        source="Both checkers left the columns out that they do not read.",
        plant=patches(
            patch(
                "chaos.foreign:_declared",
                (
                    "if len(complaints)",
                    "if column.name not in ('run_id', 'role') and len(complaints)",
                ),
            ),
            patch(
                "spark.validation:look_through",
                (
                    "if look.is_ruled]",
                    "if look.is_ruled and look.column.name not in ('run_id', 'role')]",
                ),
            ),
        ),
    ),
    Mutant(
        name="export-forgets-problems",
        breaks="What was wrong with a record stays behind: its export proves what it does not.",
        source="docs/import.md: what goes out comes in with the same verdict.",
        plant=patch("chaos.exchange.export:_queues", ("if history.problems:", "if False:")),
    ),
    Mutant(
        name="import-forgets-skipped-rows",
        breaks="Rows of a history that nobody understood are left out, and the verdict is valid.",
        source="The mistake that --skip-bad invites.",
        plant=patch("chaos.exchange.importer:import_history", ("about | bad.about()", "about")),
    ),
    Mutant(
        name="import-guesses-outcomes",
        breaks="A word for an outcome that the mapping does not know means that nobody knows.",
        source="Jepsen's rule for clients, where it hides acknowledged messages instead.",
        plant=patch(
            "chaos.exchange.cells:_of_type",
            (
                "return _as_text(raw)",
                "return _as_text(raw) if cell.target.name != 'outcome' or raw in ('ok', 'fail') "
                "else 'info'",
            ),
        ),
    ),
    Mutant(
        name="campaign-goes-on-behind-the-hole",
        breaks="A run that was broken off is not run again: what is behind the last comes next.",
        source="What counting the runs that are over brings, where one before the last is missing.",
        plant=patch(
            "chaos.campaign.plan:next_job",
            ("range(len(done) + 1) if n not in done", "[max(done, default=-1) + 1]"),
        ),
    ),
    Mutant(
        name="campaign-keeps-the-newest",
        breaks="Histories of runs that found something go as those of valid ones do.",
        source="What a bound of the disk brings that looks at the age alone.",
        plant=patch(
            "chaos.campaign.keep:histories_to_drop",
            (" if one.verdict == VALID", ""),
        ),
    ),
    Mutant(
        name="campaign-takes-plans-for-faults",
        breaks="The coverage of a campaign counts faults that were planned, not those that acted.",
        source="spec/proof.md 2: faults that did nothing were counted as coverage.",
        plant=patch(
            "chaos.campaign.outcome:count_faults",
            ('int(bool((row.get("witness") or {}).get("effective")))', "1"),
        ),
    ),
    Mutant(
        name="replay-without-the-bug",
        breaks="A run with a planted bug is made again without it.",
        source="The setting of a run that is easiest to leave out, since most have none.",
        plant=patch("chaos.replay:settle", ('options.mutant = about["mutant"]', "pass")),
    ),
    Mutant(
        name="shrink-ends-with-halves",
        breaks="The search for a smaller plan stops at chunks: single faults are not left out.",
        source="What a search by halves alone does where faults work together.",
        plant=patch(
            "chaos.campaign.minimal:_fewer_faults", ("if chunk == 1 and not gone", "if not gone")
        ),
    ),
    Mutant(
        name="groups-of-a-node-mixed",
        breaks="Checkers lay what one node notes of several Raft groups in one line.",
        source="Seen in this system: a node of two groups was told to let its term fall.",
        plant=patch(
            "chaos.checker.events:_member",
            ('return row["node"], row.get("group") or 0', 'return row["node"], 0'),
        ),
    ),
    Mutant(
        name="lies-excuse-without-a-power-loss",
        breaks="Syncs that lied excuse a loss though their node never lost its power.",
        source="Seen in this system: a kill keeps the page cache, and its losses were excused.",
        plant=patch("chaos.catalogue.faults:_loses_power", ("kind is not None", "True or kind")),
    ),
    Mutant(
        name="any-fault-explains-any-line",
        breaks="Whatever a node logs, a fault on it explains.",
        source="What a broker that is beaten by faults logs is easily taken for their effect.",
        plant=patch(
            "chaos.checker.process_logs:_is_explained",
            ('explains(span.kind, row["kind"])', "True"),
        ),
    ),
    Mutant(
        name="torn-line-hides-the-next",
        breaks="What a process logs first is not seen if the one before left half a line.",
        source="A process that is killed leaves one, and all that are started share the file.",
        plant=patch(
            "chaos.history.log_lines:LogRows.take",
            ("_HEAD.finditer(line) if", "[_HEAD.match(line)] if head and"),
        ),
    ),
    Mutant(
        name="second-lie-remembers-the-first",
        breaks="What the library noted stays when noting begins again, though syncs reached it.",
        source="Seen in this system: a loss of power took back what had been synced since.",
        plant=patch("chaos.shim.control:Control.command", ("not self.is_noting", "False")),
    ),
    Mutant(
        name="loss-excuses-what-came-after",
        breaks="Where disks were taken, all that looks like loss is excused, whenever it was.",
        source="Seen in this system: messages sent a minute after the last fault, and lost.",
        plant=patch("chaos.checker.excuses:_parts", ("if not spans or", "if True or")),
    ),
    Mutant(
        name="witness-believed-against-answers",
        breaks="A broker that answered while it was said to stand still counts as gone.",
        source="An outsider's history: it had answered status questions meanwhile.",
        plant=patch(
            "chaos.checker.alone:_Answers.came_within", ("at < len(", "False and at < len(")
        ),
    ),
    Mutant(
        name="moved-clocks-explain-what-was",
        breaks="A wall clock that was moved at last explains what came early at first.",
        source="An outsider's history.",
        plant=patch(
            "chaos.checker.model:History.waited_until",
            ("max(since, self.clock_moved_at)", "since if self.clock_moved_at < NEVER else NEVER"),
        ),
    ),
    Mutant(
        name="cut-logs-hold-anything",
        breaks="Where logs have lost their beginning nobody asks what they lack behind it.",
        source="An outsider's history: foreign logs begin at index 1.",
        plant=patches(
            patch(
                "chaos.checker.logs:_Holders.__init__",
                ("CUT if row.entry_index < begin else", "CUT if begin > 0 else"),
            ),
            patch(
                "chaos.checker.logs:_Holders.of",
                ("index < self._begins[group]", "self._begins[group] > 0"),
            ),
        ),
    ),
    Mutant(
        name="anomalies-counted-only",
        breaks="Two checkers that find as many anomalies agree, whichever these are.",
        source="Seen in this system: one named a message, the other a place.",
        plant=patch("chaos.verdict:_other_keys", ("if not is_whole or", "if True or")),
    ),
    Mutant(
        name="doctor-forgets-scenarios",
        breaks="The doctor says that every scenario works where faults of files are skipped.",
        source="Seen in other harnesses: skipped faults passed for coverage.",
        plant=patch(
            "cli.doctor:scenarios", ("[] if compiler() is not None else", "[] if True else")
        ),
    ),
    Mutant(
        name="calibration-without-a-baseline",
        breaks="Bugs are looked for by a harness that finds something where there is nothing.",
        source="A harness that sees ghosts finds every bug.",
        plant=patch("chaos.campaign.matrix:next_try", ("baseline_of(outcomes) != VALID", "False")),
    ),
    Mutant(
        name="jepsen-values-unseen",
        breaks="Offsets and words of a Jepsen history are written as they come.",
        source="An offset of twenty digits ended the import with a trace.",
        plant=patch(
            "chaos.exchange.jepsen:JepsenRows._add", ("value is not None and", "False and")
        ),
    ),
    Mutant(
        name="pieces-by-rows-alone",
        breaks="Rows wait for a piece of their table however long their texts are.",
        source="50,000 rows with cells of 16 MiB.",
        plant=patch(
            "chaos.exchange.tables:TableWriter.add", (" or self._chars >= CHARS_AT_ONCE", "")
        ),
    ),
    Mutant(
        name="run-settings-of-any-type",
        breaks="A mapping may set what run.json cannot hold.",
        source="A TOML date in [run] ended the import with a trace, once all was read.",
        plant=patch("chaos.exchange.mapping:_Reader._run", ("json.dumps(told)", "pass")),
    ),
    Mutant(
        name="record-goes-on-behind-a-hole",
        breaks="What could not be recorded is left out, and the numbers of the lines hide it.",
        source="A disk that was full for a moment: deliveries in no row, and no number missed.",
        plant=patch("chaos.record:Recorder._append", ("self._failed = str(error)", "pass")),
    ),
    Mutant(
        name="end-of-its-own-forgiven",
        breaks="A broker that was to end by a fault, and did not, may end by itself later.",
        source="Its end was no row of the run's unexpected ones.",
        plant=patch("chaos.nemesis.shimmed:Shimmed.probe_after", ("may_end=False", "may_end=True")),
    ),
    Mutant(
        name="half-applied-is-left-on",
        breaks="A fault that failed amid being applied stays in force until the end of the run.",
        source="A broker whose kill had failed was down for the rest of the run.",
        plant=patch(
            "chaos.nemesis.runner:Nemesis._give_up",
            ("record.t_on0 is None or", "True or"),
        ),
    ),
    Mutant(
        name="half-applied-never-was",
        breaks="A fault that failed amid being applied counts as one that never was in force.",
        source="A clock that was moved all the same made delayed messages early (A56).",
        plant=patch("chaos.checker.model:_was_on", ("not in IDLE", "not in {*IDLE, FAILED}")),
    ),
    Mutant(
        name="excuses-cut-short",
        breaks="Loss is excused though the job could not ask what the faults do not explain.",
        source="Only A48 told of a failed step, which had been asked before that.",
        plant=patch("spark.job:judge", ("steps.failures[known:]", "[]")),
    ),
    Mutant(
        name="excused-by-a-refusal",
        breaks="A disk that refused calls excuses the loss of what it had taken before.",
        source="One eio under asynchronous flush excused whatever a pair lost.",
        plant=patch("chaos.nemesis.shimmed:Shimmed.__init__", ("if self._how.keeps", "if False")),
    ),
)
