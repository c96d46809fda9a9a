"""Which plugin is used and why each other one is not, what would happen, and a client with options.

pip install 'pjrt-hub[cpu]'
python examples/choose.py [PLATFORM]
"""

import sys

import pjrt_hub
from pjrt_hub.errors import PjrtHubError


def main():
    """Look, ask, and make a client of four devices; nothing is loaded before that."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else None

    print(f"Candidates for {wanted or 'the best one'}:")
    for found in pjrt_hub.plugins(wanted):
        print(f"  {'->' if found.chosen else '  '} {found.name:8} {found.verdict.reason}")

    print("What client() would do:")
    for step in pjrt_hub.diagnose(wanted).steps:
        print(f"  {'ok' if step.ok else 'no'} {step.what:10} {step.detail.splitlines()[0]}")
        if step.hint:
            print(f"     hint: {step.hint}")

    print("Mistakes, and what is said of them:")
    for name, options in (
        ("cdua", {}),
        ("cpu", {"cpu_devices": 4}),
        ("cpu", {"cpu_device_count": "4"}),
    ):
        try:
            pjrt_hub.client(name, options=options).close()
        except (PjrtHubError, ValueError, TypeError) as error:
            print(f"  {type(error).__name__}: {str(error).splitlines()[0]}")

    with pjrt_hub.client("cpu", options={"cpu_device_count": 4}) as client:
        plugin = client.plugin
        print(f"{plugin.name}, PJRT API {plugin.api_version}: {len(client.devices)} devices")


if __name__ == "__main__":
    main()
