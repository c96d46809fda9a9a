"""The code that runs before the program, which may have been started as a process of pjrt-hub."""

import pjrt_hub  # noqa: F401
