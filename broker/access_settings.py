"""Settings of access control, under RocketMQ's names."""

from __future__ import annotations

from dataclasses import dataclass

from ledgermq.remoting.transport.tls import TlsSettings
from ledgermq.runtime.config import key


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings(TlsSettings):
    """Whether accounts are asked for, and where they are."""

    acl_enable: bool = key("aclEnable", default=False)
    acl_file: str = key("rocketmq.acl.plain.file", "conf/plain_acl.yml")
    """From the directory in which the broker was started; a system property in RocketMQ."""
