"""RocketMQ's view of the replicated log: records, consume queues, reads by queue offset."""
