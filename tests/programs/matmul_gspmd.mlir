// tanh(a b) on a 4x2 mesh, split by sharding annotations: rows over the first axis.
func.func @main(
    %a: tensor<8x16xf32> {mhlo.sharding = "{devices=[4,2]<=[8]}"},
    %b: tensor<16x6xf32> {mhlo.sharding =
        "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"})
    -> (tensor<8x6xf32> {mhlo.sharding = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"}) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x6xf32>) -> tensor<8x6xf32>
  %1 = stablehlo.tanh %0 : tensor<8x6xf32>
  return %1 : tensor<8x6xf32>
}
