"""Trains on four devices, each with its own examples and a quarter of the weights.

Every step gathers the weights and scatters the gradients: fully sharded data parallel training.
pip install 'pjrt-hub[cpu]'
python examples/sharded.py
"""

import numpy as np

import pjrt_hub

DEVICES, ROWS, WEIGHTS, STEPS = 4, 64, 8, 60
PROGRAM = """
func.func @main(%part: tensor<2xf32>, %x: tensor<64x8xf32>, %y: tensor<64xf32>)
    -> (tensor<2xf32>, tensor<f32>) {
  %w = "stablehlo.all_gather"(%part) {all_gather_dim = 0 : i64,
      replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<2xf32>) -> tensor<8xf32>
  %out = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<64x8xf32>, tensor<8xf32>) -> tensor<64xf32>
  %error = stablehlo.subtract %out, %y : tensor<64xf32>
  %slope = stablehlo.dot_general %error, %x, contracting_dims = [0] x [0]
      : (tensor<64xf32>, tensor<64x8xf32>) -> tensor<8xf32>
  %mine = "stablehlo.reduce_scatter"(%slope) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
      : (tensor<8xf32>) -> tensor<2xf32>
  %rate = stablehlo.constant dense<0.002> : tensor<2xf32>
  %change = stablehlo.multiply %rate, %mine : tensor<2xf32>
  %new = stablehlo.subtract %part, %change : tensor<2xf32>
  %square = stablehlo.dot_general %error, %error, contracting_dims = [0] x [0]
      : (tensor<64xf32>, tensor<64xf32>) -> tensor<f32>
  %loss = "stablehlo.all_reduce"(%square) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<f32>) -> tensor<f32>
  return %new, %loss : tensor<2xf32>, tensor<f32>
}
"""


def main():
    """Find the weights of a linear function again from noisy examples."""
    rng = np.random.default_rng(0)
    truth = np.arange(1, WEIGHTS + 1, dtype=np.float32)
    x = rng.normal(0, 1, (DEVICES * ROWS, WEIGHTS)).astype(np.float32)
    y = x @ truth + rng.normal(0, 0.01, DEVICES * ROWS).astype(np.float32)

    with pjrt_hub.client("cpu", options={"cpu_device_count": DEVICES}) as client:
        step = client.compile(PROGRAM, pjrt_hub.CompileOptions(num_replicas=DEVICES))
        shards = [
            [client.buffer_from_host(part, device=device) for part in parts]
            for device, *parts in zip(
                step.devices,
                np.zeros((DEVICES, 2), np.float32),
                x.reshape(DEVICES, ROWS, WEIGHTS),
                y.reshape(DEVICES, ROWS),
                strict=True,
            )
        ]
        for number in range(STEPS):
            results = step.execute(shards)  # Each device has a row, and the call waits for nothing.
            shards = [[new, *data] for (new, _), (_, *data) in zip(results, shards, strict=True)]
            if number % 20 == 0 or number == STEPS - 1:
                print(f"step {number:2}  loss {results[0][1].item():10.4f}")
        for part, *_ in shards:
            print(f"{part.device}: {np.asarray(part).round(2).tolist()}")


if __name__ == "__main__":
    main()
