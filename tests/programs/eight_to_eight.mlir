// Eight arguments, eight results: result i is argument i + argument i+1, the last + the first.
func.func @main(%arg0: tensor<8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>,
    %arg3: tensor<8xf32>, %arg4: tensor<8xf32>, %arg5: tensor<8xf32>, %arg6: tensor<8xf32>,
    %arg7: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
        tensor<8xf32>, tensor<8xf32>) {
  %0 = stablehlo.add %arg0, %arg1 : tensor<8xf32>
  %1 = stablehlo.add %arg1, %arg2 : tensor<8xf32>
  %2 = stablehlo.add %arg2, %arg3 : tensor<8xf32>
  %3 = stablehlo.add %arg3, %arg4 : tensor<8xf32>
  %4 = stablehlo.add %arg4, %arg5 : tensor<8xf32>
  %5 = stablehlo.add %arg5, %arg6 : tensor<8xf32>
  %6 = stablehlo.add %arg6, %arg7 : tensor<8xf32>
  %7 = stablehlo.add %arg7, %arg0 : tensor<8xf32>
  return %0, %1, %2, %3, %4, %5, %6, %7 :
      tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
      tensor<8xf32>, tensor<8xf32>
}
