// a + b for two vectors.
func.func @main(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %sum = stablehlo.add %a, %b : tensor<8xf32>
  return %sum : tensor<8xf32>
}
