"""Decompression and compression of message bodies, by the type bits of sysFlag.

The broker never touches a compressed body; this is for clients and tools. Source: MessageSysFlag,
CompressionType, CompressorFactory (spec/wire.md 4.2).
"""

import importlib
import zlib
from typing import Any, Final

from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError

TYPE_MASK: Final = 0x700
TYPE_LZ4: Final = 0x100
TYPE_ZSTD: Final = 0x200
TYPE_ZLIB: Final = 0x300
COMPRESSED_ZLIB: Final = 0x301
"""sysFlag bits that a 4.9.4 or later client sets for a zlib body."""

CONTENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest content accepted, so that a small body cannot fill the memory."""


class ContentTooLarge(RemoteProtocolError):  # noqa: N818 - says what is
    """A body holds more than `CONTENT_BYTES_MAX`: finding that out took as long as reading it."""


def compress(content: bytes, level: int = 5) -> bytes:
    """Return the zlib form of a body; set `COMPRESSED_ZLIB` in its sysFlag."""
    return zlib.compress(content, level)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """Return the content of a compressed body.

    Errors: `RemoteProtocolError` if it is corrupt, cut short or of unknown type;
    `ContentTooLarge`, one of these; `LocalProtocolError` if the package for its type is not
    installed.
    """
    kind = sys_flag & TYPE_MASK
    if kind in (0, TYPE_ZLIB):
        return _zlib(body)
    if kind == TYPE_LZ4:
        return _lz4(body)
    if kind == TYPE_ZSTD:
        return _zstd(body)
    raise RemoteProtocolError(f"unknown compression type {kind:#x}")


def _zlib(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(body, CONTENT_BYTES_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"body is not a zlib stream: {error}") from error
    if not inflater.eof:
        raise _unfinished("zlib", content)
    return content


def _lz4(body: bytes) -> bytes:
    frame = _package("lz4.frame")
    inflater = frame.LZ4FrameDecompressor()
    try:
        content = bytes(inflater.decompress(body, CONTENT_BYTES_MAX))
    except (RuntimeError, EOFError) as error:
        raise RemoteProtocolError(f"body is not an LZ4 frame: {error}") from error
    if not inflater.eof:
        raise _unfinished("LZ4", content)
    return content


def _zstd(body: bytes) -> bytes:
    package = _package("zstandard")
    decompressor = package.ZstdDecompressor()
    try:
        stated = package.get_frame_parameters(body).content_size
        most = min(stated, CONTENT_BYTES_MAX) + 1
        content = bytes(decompressor.stream_reader(body).read(most))
        if len(content) > CONTENT_BYTES_MAX:
            raise _unfinished("zstd", content)
        # What a reader gives of a frame that is cut short ends as if the frame did.
        is_whole = len(content) == stated
        if stated == package.CONTENTSIZE_UNKNOWN:
            whole = decompressor.decompressobj()
            whole.decompress(body)
            is_whole = whole.eof
    except package.ZstdError as error:
        raise RemoteProtocolError(f"body is not a zstd frame: {error}") from error
    if not is_whole:
        raise _unfinished("zstd", content)
    return content


def _unfinished(kind: str, content: bytes) -> RemoteProtocolError:
    """Return why a body was not read to its end."""
    if len(content) >= CONTENT_BYTES_MAX:
        return ContentTooLarge(f"{kind} body is too large")
    return RemoteProtocolError(f"{kind} body is cut short")


def _package(name: str) -> Any:  # noqa: ANN401 - optional packages without types
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise LocalProtocolError(f"install the package {package} to read this body") from error
