// The sum over eight replicas, an eighth of it on each.
func.func @main(%a: tensor<16xf32>) -> tensor<2xf32> {
  %part = "stablehlo.reduce_scatter"(%a) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %0 = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %0 : tensor<f32>
  }) {
    scatter_dimension = 0 : i64,
    replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>
  } : (tensor<16xf32>) -> tensor<2xf32>
  return %part : tensor<2xf32>
}
