"""Access control: which account may send and read what (RocketMQ's ``aclEnable``)."""
