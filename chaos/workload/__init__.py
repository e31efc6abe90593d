"""The queue workload: producers, a consumer group, an auditor.

Operations: ``send`` of one message with a unique key to any queue of one topic. Each message says
in its body which run and which key it is, and its bytes follow from the key. The group reads with
clustering and acknowledges everything. After the last fault the auditor reads every queue from its
beginning to its end.

What is demanded: what was acknowledged is delivered to the group at least once, unchanged (A1,
A6); nothing is delivered that was not sent or that was definitely refused (A5, A7); one offset of
a queue is one message for everybody (A15); see `chaos.checker` for the rest.
"""
