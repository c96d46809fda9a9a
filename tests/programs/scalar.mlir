// a + 1 for a scalar.
func.func @main(%a: tensor<f32>) -> tensor<f32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %sum = stablehlo.add %a, %one : tensor<f32>
  return %sum : tensor<f32>
}
