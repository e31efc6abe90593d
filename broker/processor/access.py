"""The access file by tools: change and remove accounts, trusted addresses, and what there is.

Each broker answers for its own file. Secret keys are taken and never told.
Source: RocketMQ AdminBrokerProcessor 4.9 (50 to 54), PlainPermissionManager.updateAccessConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.access.rules import ACCOUNT_KEYS
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import make_response
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.transport.requests import serves

if TYPE_CHECKING:
    from broker.access.file import AccessFile, Document
    from broker.config import BrokerConfig
    from ledgermq.remoting.protocol.command import RemotingCommand

_OFF: Final = "access control is off here: aclEnable=false"


class _AccountHeader(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class _KeyHeader(msgspec.Struct, rename="camel"):
    access_key: str


class _WhiteHeader(msgspec.Struct, rename="camel"):
    global_white_addrs: str
    acl_file_full_path: str | None = None


class _Refused(Exception):  # noqa: N818  # an answer
    """The remark of the answer."""


class AccessProcessor:
    """Answers for the access file of one broker; without one, that there is none."""

    def __init__(self, file: AccessFile | None, config: BrokerConfig) -> None:
        self._file = file
        self._config = config

    @serves(
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        what="make or change an account; what is not given stays",
        header=_AccountHeader,
    )
    async def handle_account(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take UPDATE_AND_CREATE_ACL_CONFIG (50)."""
        header = decode_header(request, _AccountHeader)

        def change(document: Document) -> None:
            accounts = _accounts(document)
            found = [one for one in accounts if one.get("accessKey") == header.access_key]
            account = found[0] if found else {}
            account.update(_given(header))
            if not found:
                accounts.append(account)

        return await self._change(request, change, ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED)

    @serves(RequestCode.DELETE_ACL_CONFIG, what="remove an account", header=_KeyHeader)
    async def handle_delete(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take DELETE_ACL_CONFIG (51)."""
        access_key = decode_header(request, _KeyHeader).access_key

        def change(document: Document) -> None:
            accounts = _accounts(document)
            left = [one for one in accounts if one.get("accessKey") != access_key]
            if len(left) == len(accounts):
                raise _Refused(f"there is no account {access_key[:64]}")
            document["accounts"] = left

        return await self._change(request, change, ResponseCode.DELETE_ACL_CONFIG_FAILED)

    @serves(
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        what="set the addresses that need no account",
        header=_WhiteHeader,
    )
    async def handle_white(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53)."""
        header = decode_header(request, _WhiteHeader)

        def change(document: Document) -> None:
            assert self._file is not None
            if header.acl_file_full_path not in {None, "", self._file.path}:
                raise _Refused(f"the one access file here is {self._file.path}")
            document["globalWhiteRemoteAddresses"] = _words(header.global_white_addrs)

        return await self._change(
            request, change, ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        )

    @serves(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, what="version of the access file")
    def handle_version(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_BROKER_CLUSTER_ACL_INFO (52)."""
        if self._file is None:
            return make_response(request, ResponseCode.SYSTEM_ERROR, _OFF)
        counter, timestamp = self._file.version
        version = {"counter": counter, "timestamp": timestamp}
        fields = {
            "version": msgspec.json.encode(version).decode(),
            "allAclFileVersion": msgspec.json.encode({self._file.path: version}).decode(),
            "brokerName": self._config.registered_name,
            "brokerAddr": self._config.broker_addr,
            "clusterName": self._config.broker_cluster_name,
        }
        return make_response(request, ResponseCode.SUCCESS, None, fields)

    @serves(
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        what="accounts and trusted addresses, without secret keys",
    )
    def handle_config(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_BROKER_CLUSTER_ACL_CONFIG (54)."""
        if self._file is None:
            return make_response(request, ResponseCode.SYSTEM_ERROR, _OFF)
        document = self._file.document
        accounts = [
            {name: one[name] for name in ACCOUNT_KEYS if name in one and name != "secretKey"}
            for one in document.get("accounts") or []
        ]
        body = {
            "globalWhiteAddrs": document.get("globalWhiteRemoteAddresses") or [],
            "plainAccessConfigs": accounts,
        }
        return make_response(request, ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    async def _change(self, request: RemotingCommand, change: Any, failed: int) -> RemotingCommand:  # noqa: ANN401  # one of the functions above
        """Have the file changed, and answer; nothing has changed after a refusal."""
        if self._file is None:
            return make_response(request, failed, _OFF)
        try:
            await self._file.change(change)
        except (_Refused, ValueError, OSError) as error:
            return make_response(request, failed, str(error))
        return make_response(request, ResponseCode.SUCCESS)


def _accounts(document: Document) -> list[dict[str, Any]]:
    accounts: list[dict[str, Any]] = [dict(one) for one in document.get("accounts") or []]
    document["accounts"] = accounts
    return accounts


def _given(header: _AccountHeader) -> dict[str, Any]:
    given = {
        "accessKey": header.access_key,
        "secretKey": header.secret_key or None,
        "whiteRemoteAddress": header.white_remote_address,
        "admin": header.admin,
        "defaultTopicPerm": header.default_topic_perm or None,
        "defaultGroupPerm": header.default_group_perm or None,
        "topicPerms": None if header.topic_perms is None else _words(header.topic_perms),
        "groupPerms": None if header.group_perms is None else _words(header.group_perms),
    }
    return {name: value for name, value in given.items() if value is not None}


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
