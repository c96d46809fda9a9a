// Two results of different dtypes: 2 * a as f32[2,3], and whether a > 0 as pred[2,3].
func.func @main(%a: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xi1>) {
  %zero = stablehlo.constant dense<0.0> : tensor<2x3xf32>
  %double = stablehlo.add %a, %a : tensor<2x3xf32>
  %positive = stablehlo.compare GT, %a, %zero
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  return %double, %positive : tensor<2x3xf32>, tensor<2x3xi1>
}
