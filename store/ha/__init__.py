"""RocketMQ's HA stream: a master sends the bytes of its plain commit log, a slave appends them.

`codec` is the stream, `assembly` makes whole records of it, `gate` says how far a synchronous
master's log counts as committed: pure. `master` and `slave` are the two sides over connections,
`master_log` and `slave_log` the logs of both.
"""
