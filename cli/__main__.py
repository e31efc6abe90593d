"""``python -m cli`` is the ``ledgermq`` command."""

from cli.main import main

main()
