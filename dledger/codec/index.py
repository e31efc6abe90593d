"""The index unit: where entry ``index`` lies. Unit ``i`` is at byte ``i * 32`` of the index files.

| offset | size | field | note |
|---|---|---|---|
| 0 | 4 | magic | int32, 1 |
| 4 | 8 | position | int64, of the entry header in the log |
| 12 | 4 | size | int32, header and body |
| 16 | 8 | index | int64 |
| 24 | 8 | term | int64 |

All big-endian. Source: DLedgerEntryCoder.encodeIndex (spec/disk.md 6.1).
"""

import struct
from typing import Final

from dledger.core.model import UNIT_BYTES

UNIT: Final = struct.Struct(">iqiqq")
UNIT_MAGIC: Final = 1

assert UNIT.size == UNIT_BYTES
