"""Copies to the device, computing and copies back at once, in tasks of asyncio that share a thread.

pip install 'pjrt-hub[cpu]'
python examples/pipeline.py
"""

import asyncio
import itertools

import numpy as np

import pjrt_hub

SIZE, BATCHES, AT_ONCE = 256, 12, 3
PROGRAM = """
func.func @main(%x: MATRIX, %w: MATRIX) -> MATRIX {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (MATRIX, MATRIX) -> MATRIX
  %1 = stablehlo.tanh %0 : MATRIX
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0] : (MATRIX, MATRIX) -> MATRIX
  return %2 : MATRIX
}
""".replace("MATRIX", f"tensor<{SIZE}x{SIZE}xf32>")


async def main():
    """Send every batch through the pipeline, and print the mean of each result's squares."""
    rng = np.random.default_rng(0)
    with pjrt_hub.client("cpu") as client:
        program = client.compile(PROGRAM)
        weights = client.buffer_from_host(rng.normal(0, 0.1, (SIZE, SIZE)).astype(np.float32))
        places = asyncio.Semaphore(AT_ONCE)  # At most this many batches lie on the device.
        under_way, most, beats = set(), 0, [0]
        batches = [rng.normal(0, 1, (SIZE, SIZE)).astype(np.float32) for _ in range(BATCHES)]

        async def through(number):
            nonlocal most
            async with places:
                under_way.add(number)
                most = max(most, len(under_way))
                x = client.buffer_from_host(
                    batches[number],
                    semantics=pjrt_hub.HostBufferSemantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES,
                )
                result = program(x, weights)  # It returns before x or the result is on the device.
                await result.ready  # Other tasks run until the device is done.
                under_way.remove(number)
            return float(np.square(np.asarray(result)).mean())

        async def beat():
            for count in itertools.count():
                beats[0] = count
                await asyncio.sleep(0.001)

        heart = asyncio.create_task(beat())
        means = await asyncio.gather(*map(through, range(BATCHES)))
        heart.cancel()
    for number, mean in enumerate(means):
        print(f"batch {number:2}: {mean:.4f}")
    print(f"{most} batches at once in one thread, which was free for {beats[0]} other things")


if __name__ == "__main__":
    asyncio.run(main())
