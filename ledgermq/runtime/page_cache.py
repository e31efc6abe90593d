"""What of a mapped file the kernel has in memory: an event loop that touches the rest waits for it.

All of this is about maps of files (`ledgermq.runtime.disk.File.view`); any other memory is there.
"""

import contextlib
import ctypes
import mmap
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_mincore = getattr(_libc, "mincore", None)
"""Linux's and BSD's."""
_IN_MEMORY: Final = 1
_PyBUF_SIMPLE: Final = 0


class _Buffer(ctypes.Structure):
    """``Py_buffer`` of Python's limited API."""

    _fields_ = (
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    )  # fmt: skip


def read_ahead(view: memoryview, offset: int, size: int) -> None:
    """Ask the kernel to read a part of a file soon, without waiting for it.

    A hint that is refused is none.
    """
    mapped = view.obj
    if isinstance(mapped, mmap.mmap):
        start = offset - offset % mmap.PAGESIZE
        with contextlib.suppress(OSError):
            mapped.madvise(mmap.MADV_WILLNEED, start, min(offset + size, len(mapped)) - start)


def is_in_memory(view: memoryview, offset: int, size: int) -> bool:
    """Tell whether a part of a file can be read without waiting; where nobody knows, it can."""
    mapped = view.obj
    if _mincore is None or not isinstance(mapped, mmap.mmap) or size <= 0:
        return True
    start = offset - offset % mmap.PAGESIZE
    length = min(offset + size, len(mapped)) - start
    pages = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
    address = _address(mapped)
    if _mincore(ctypes.c_void_p(address + start), ctypes.c_size_t(length), pages):
        return True
    return all(page & _IN_MEMORY for page in pages.raw)


def _address(mapped: mmap.mmap) -> int:
    """Return where a map begins, which stays there as long as it is open."""
    found = _Buffer()
    api = ctypes.pythonapi
    api.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(found), _PyBUF_SIMPLE)
    address = int(found.buf or 0)
    api.PyBuffer_Release(ctypes.byref(found))
    return address
