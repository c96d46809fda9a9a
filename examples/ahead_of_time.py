"""Compiles hello.mlir for machines that are not here, keeps the code, and says what is in it.

pip install 'pjrt-hub[cuda]' 'pjrt-hub[tpu]'        (or let it fetch their plugins: 400 MB)
python examples/ahead_of_time.py cuda:H100 tpu:v5e:2x2
"""

import sys
from pathlib import Path

import pjrt_hub
from pjrt_hub.running.executable import serialized

HELLO = Path(__file__).with_name("hello.mlir")


def main():
    """Compile for each target that is named."""
    targets = sys.argv[1:] or ["cuda:H100", "tpu:v5e:2x2"]
    for target in targets:
        platform, _, machine = target.partition(":")
        topology = pjrt_hub.topology(platform, machine)
        device = topology.device_descriptions[0]
        print(f"{target}: {len(topology.device_descriptions)} x {device.kind}")

        executable = topology.compile(HELLO)
        path = Path(f"hello.{platform}")
        path.write_bytes(executable.serialize())
        print(f"  takes and gives {executable.signature}")

        guards, code, _ = serialized.parse(path.read_bytes())
        print(f"  {path} holds {len(code):,} bytes of code for {guards.platform}")
        print(f"  and loads only in PJRT API {guards.api_version} of the same library, there:")
        print(f'  pjrt_hub.client("{platform}").load(code)')


if __name__ == "__main__":
    main()
