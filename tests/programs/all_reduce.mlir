// The sum over eight replicas, the same on each.
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %sum = "stablehlo.all_reduce"(%a) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %0 = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %0 : tensor<f32>
  }) {replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}
      : (tensor<4xf32>) -> tensor<4xf32>
  return %sum : tensor<4xf32>
}
