"""A program that calls Python in its middle: the eigenvalues of a matrix, by numpy.

pip install 'pjrt-hub[cpu]'
python examples/custom_call.py
"""

import numpy as np

import pjrt_hub

PROGRAM = """
func.func @main(%a: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<f32>) {
  %transposed = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %symmetric = stablehlo.add %a, %transposed : tensor<4x4xf32>
  %values = stablehlo.custom_call @eigenvalues(%symmetric) {
      api_version = 4 : i32, backend_config = {largest_first = true}
  } : (tensor<4x4xf32>) -> tensor<4xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %trace = stablehlo.reduce(%values init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %values, %trace : tensor<4xf32>, tensor<f32>
}
"""


def eigenvalues(matrix, out, *, largest_first):
    """Works on the program's own memory: `matrix` is read-only, `out` is written in place."""
    if not np.isfinite(matrix).all():
        raise ValueError("the matrix is not finite")
    values = np.linalg.eigvalsh(matrix)
    out[...] = values[::-1] if largest_first else values


def main():
    """Run it on a good matrix and on a bad one."""
    with pjrt_hub.client("cpu") as client:
        client.plugin.ffi.register("eigenvalues", eigenvalues)
        program = client.compile(PROGRAM)
        a = np.arange(16, dtype=np.float32).reshape(4, 4)
        values, trace = program(client.buffer_from_host(a))
        print("eigenvalues", np.asarray(values, float).round(3).tolist())
        print("their sum is", round(trace.item(), 3), "and the trace", float(np.trace(a + a.T)))

        bad = client.buffer_from_host(np.full((4, 4), np.nan, np.float32))
        try:
            program(bad)[0].to_numpy()  # Either of the two raises, depending on the plugin.
        except pjrt_hub.errors.InvalidArgumentError as error:
            print("and of NaN:", str(error).splitlines()[0])


if __name__ == "__main__":
    main()
