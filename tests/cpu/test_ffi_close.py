"""A custom call that closes the client whose program it is part of."""

from __future__ import annotations


def test_a_function_that_closes_the_client(child):
    """The program waits for the function, and the end of the client for the program."""
    output = child(
        """
        def close(a, out):
            client.close()
            out[...] = a
        client.plugin.ffi.register("close", close)
        executable = client.compile(SLOW.replace("stablehlo.return %j, %y", '''
            %z = stablehlo.custom_call @close(%y) {api_version = 4 : i32, backend_config = {}}
                : (tensor<256x256xf32>) -> tensor<256x256xf32>
            stablehlo.return %j, %z'''))
        value = client.buffer_from_host(np.eye(256, dtype=np.float32))
        executable(value, client.buffer_from_host(np.int32(3)))
        deadline = time.monotonic() + 30
        while client._address and time.monotonic() < deadline:
            time.sleep(0.01)
        print(client.closed, client._address)
        """
    )
    assert output == "True 0\n"
