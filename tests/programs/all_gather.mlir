// What eight replicas have, one after the other, on each.
func.func @main(%a: tensor<4xf32>) -> tensor<32xf32> {
  %all = "stablehlo.all_gather"(%a) {
    all_gather_dim = 0 : i64,
    replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>
  } : (tensor<4xf32>) -> tensor<32xf32>
  return %all : tensor<32xf32>
}
