// Replica r gets the r-th element of each of eight replicas.
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %turned = "stablehlo.all_to_all"(%a) {
    split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 8 : i64,
    replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>
  } : (tensor<8xf32>) -> tensor<8xf32>
  return %turned : tensor<8xf32>
}
