// tanh(a * b + 1): the small program by which call overhead is measured.
func.func @main(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<8xf32>
  %product = stablehlo.multiply %a, %b : tensor<8xf32>
  %sum = stablehlo.add %product, %one : tensor<8xf32>
  %tanh = stablehlo.tanh %sum : tensor<8xf32>
  return %tanh : tensor<8xf32>
}
