// a + a, its result laid out column by column.
func.func @main(%a: tensor<2x3xf32>) -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
  %sum = stablehlo.add %a, %a : tensor<2x3xf32>
  return %sum : tensor<2x3xf32>
}
