"""The command `pjrt-hub`, run as `python -m pjrt_hub`."""

from pjrt_hub.cli.__main__ import main

if __name__ == "__main__":
    main()
