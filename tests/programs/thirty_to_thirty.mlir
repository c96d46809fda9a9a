// Thirty arguments, thirty results: result i is argument i + argument i+1, the last + the first.
func.func @main(%arg0: tensor<8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>,
    %arg3: tensor<8xf32>, %arg4: tensor<8xf32>, %arg5: tensor<8xf32>, %arg6: tensor<8xf32>,
    %arg7: tensor<8xf32>, %arg8: tensor<8xf32>, %arg9: tensor<8xf32>, %arg10: tensor<8xf32>,
    %arg11: tensor<8xf32>, %arg12: tensor<8xf32>, %arg13: tensor<8xf32>, %arg14: tensor<8xf32>,
    %arg15: tensor<8xf32>, %arg16: tensor<8xf32>, %arg17: tensor<8xf32>, %arg18: tensor<8xf32>,
    %arg19: tensor<8xf32>, %arg20: tensor<8xf32>, %arg21: tensor<8xf32>, %arg22: tensor<8xf32>,
    %arg23: tensor<8xf32>, %arg24: tensor<8xf32>, %arg25: tensor<8xf32>, %arg26: tensor<8xf32>,
    %arg27: tensor<8xf32>, %arg28: tensor<8xf32>, %arg29: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
        tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
        tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
        tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
        tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = stablehlo.add %arg0, %arg1 : tensor<8xf32>
  %1 = stablehlo.add %arg1, %arg2 : tensor<8xf32>
  %2 = stablehlo.add %arg2, %arg3 : tensor<8xf32>
  %3 = stablehlo.add %arg3, %arg4 : tensor<8xf32>
  %4 = stablehlo.add %arg4, %arg5 : tensor<8xf32>
  %5 = stablehlo.add %arg5, %arg6 : tensor<8xf32>
  %6 = stablehlo.add %arg6, %arg7 : tensor<8xf32>
  %7 = stablehlo.add %arg7, %arg8 : tensor<8xf32>
  %8 = stablehlo.add %arg8, %arg9 : tensor<8xf32>
  %9 = stablehlo.add %arg9, %arg10 : tensor<8xf32>
  %10 = stablehlo.add %arg10, %arg11 : tensor<8xf32>
  %11 = stablehlo.add %arg11, %arg12 : tensor<8xf32>
  %12 = stablehlo.add %arg12, %arg13 : tensor<8xf32>
  %13 = stablehlo.add %arg13, %arg14 : tensor<8xf32>
  %14 = stablehlo.add %arg14, %arg15 : tensor<8xf32>
  %15 = stablehlo.add %arg15, %arg16 : tensor<8xf32>
  %16 = stablehlo.add %arg16, %arg17 : tensor<8xf32>
  %17 = stablehlo.add %arg17, %arg18 : tensor<8xf32>
  %18 = stablehlo.add %arg18, %arg19 : tensor<8xf32>
  %19 = stablehlo.add %arg19, %arg20 : tensor<8xf32>
  %20 = stablehlo.add %arg20, %arg21 : tensor<8xf32>
  %21 = stablehlo.add %arg21, %arg22 : tensor<8xf32>
  %22 = stablehlo.add %arg22, %arg23 : tensor<8xf32>
  %23 = stablehlo.add %arg23, %arg24 : tensor<8xf32>
  %24 = stablehlo.add %arg24, %arg25 : tensor<8xf32>
  %25 = stablehlo.add %arg25, %arg26 : tensor<8xf32>
  %26 = stablehlo.add %arg26, %arg27 : tensor<8xf32>
  %27 = stablehlo.add %arg27, %arg28 : tensor<8xf32>
  %28 = stablehlo.add %arg28, %arg29 : tensor<8xf32>
  %29 = stablehlo.add %arg29, %arg0 : tensor<8xf32>
  return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19,
      %20, %21, %22, %23, %24, %25, %26, %27, %28, %29 :
      tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
      tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
      tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
      tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
      tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
