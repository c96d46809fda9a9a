"""`python -m pjrt_hub`, which is `pjrt-hub`."""

from pjrt_hub.cli.__main__ import main

if __name__ == "__main__":
    main()
