// Sends its argument to the host on channel 1, and returns what it receives on channel 2.
func.func @main(%a: tensor<8x128xf32>) -> tensor<8x128xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  %s = "stablehlo.send"(%a, %t) {
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true,
      mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_hub",
                                  _xla_host_transfer_rendezvous = "to_host"}}
      : (tensor<8x128xf32>, !stablehlo.token) -> !stablehlo.token
  %r:2 = "stablehlo.recv"(%s) {
      channel_handle = #stablehlo.channel_handle<handle = 2, type = 3>, is_host_transfer = true,
      mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_hub",
                                  _xla_host_transfer_rendezvous = "to_device"}}
      : (!stablehlo.token) -> (tensor<8x128xf32>, !stablehlo.token)
  return %r#0 : tensor<8x128xf32>
}
