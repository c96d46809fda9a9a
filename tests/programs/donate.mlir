// a + b written over a: the first argument is donated to the result.
func.func @main(
    %a: tensor<8xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<8xf32>) -> tensor<8xf32> {
  %sum = stablehlo.add %a, %b : tensor<8xf32>
  return %sum : tensor<8xf32>
}
