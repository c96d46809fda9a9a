// No argument: 0, 1, 2 ... 7.
func.func @main() -> tensor<8xi32> {
  %numbers = stablehlo.iota dim = 0 : tensor<8xi32>
  return %numbers : tensor<8xi32>
}
