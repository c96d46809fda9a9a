// What shard_map makes under Shardy: twice the rows of eight devices, summed.
module @twice attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(%a: tensor<16x4xf32>) -> tensor<2x4xf32> {
    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>]
        out_shardings=[<@mesh, [{}, {}]>] manual_axes={"x"} (%b: tensor<2x4xf32>) {
      %1 = stablehlo.add %b, %b : tensor<2x4xf32>
      %2 = "stablehlo.all_reduce"(%1) <{
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>,
        use_global_device_ids
      }> ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %3 = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %3 : tensor<f32>
      }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      sdy.return %2 : tensor<2x4xf32>
    } : (tensor<16x4xf32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
