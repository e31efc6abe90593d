"""Settings of all tests: random inputs are the same in every run, so a failure is the change's.

``LEDGERMQ_RANDOM=1`` draws new ones, to look for what nobody has thought of.
"""

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize="LEDGERMQ_RANDOM" not in os.environ)
settings.load_profile("repeatable")
