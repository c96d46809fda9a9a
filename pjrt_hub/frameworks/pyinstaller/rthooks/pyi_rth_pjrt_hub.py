"""Runs before the program, which may have been started to be a process of ours."""

import pjrt_hub  # noqa: F401
