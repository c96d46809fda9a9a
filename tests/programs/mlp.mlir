// A two-layer perceptron for four rows: max(x @ w1 + b1, 0) @ w2 + b2.
func.func @main(
    %x: tensor<4x64xf32>, %w1: tensor<64x32xf32>, %b1: tensor<32xf32>,
    %w2: tensor<32x10xf32>, %b2: tensor<10xf32>) -> tensor<4x10xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<4x32xf32>
  %0 = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0]
      : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32>
  %1 = stablehlo.broadcast_in_dim %b1, dims = [1] : (tensor<32xf32>) -> tensor<4x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<4x32xf32>
  %hidden = stablehlo.maximum %2, %zero : tensor<4x32xf32>
  %3 = stablehlo.dot_general %hidden, %w2, contracting_dims = [1] x [0]
      : (tensor<4x32xf32>, tensor<32x10xf32>) -> tensor<4x10xf32>
  %4 = stablehlo.broadcast_in_dim %b2, dims = [1] : (tensor<10xf32>) -> tensor<4x10xf32>
  %logits = stablehlo.add %3, %4 : tensor<4x10xf32>
  return %logits : tensor<4x10xf32>
}
