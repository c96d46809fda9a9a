"""A handler in C++ of XLA's FFI, compiled here by nvcc, on the program's stream."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from children import IS_HARDWARE

jax = pytest.importorskip("jax", reason="JAX, which brings the headers, is not installed")

SOURCE = r"""
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
using Numbers = ffi::Buffer<ffi::F32>;

#ifdef __CUDACC__
__global__ void scale(float by, size_t count, const float* in, float* out) {
  size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = by * in[i];
}

static ffi::Error Scale(cudaStream_t stream, float by, Numbers in,
                        ffi::ResultBuffer<ffi::F32> out) {
  size_t count = in.element_count();
  scale<<<(count + 255) / 256, 256, 0, stream>>>(by, count, in.typed_data(), out->typed_data());
  return cudaGetLastError() == cudaSuccess ? ffi::Error::Success()
                                           : ffi::Error::Internal("the kernel was not launched");
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Handler, Scale, ffi::Ffi::Bind()
    .Ctx<ffi::PlatformStream<cudaStream_t>>().Attr<float>("by").Arg<Numbers>().Ret<Numbers>());
#else
static ffi::Error Scale(float by, Numbers in, ffi::ResultBuffer<ffi::F32> out) {
  for (size_t i = 0; i < in.element_count(); i++) out->typed_data()[i] = by * in.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Handler, Scale, ffi::Ffi::Bind()
    .Attr<float>("by").Arg<Numbers>().Ret<Numbers>());
#endif
"""
WHERE = "CUDA" if IS_HARDWARE else "Host"


def program(name, count):
    kind = f"tensor<{count}xf32>"
    return f"""func.func @main(%a: {kind}) -> {kind} {{
      %0 = stablehlo.add %a, %a : {kind}
      %1 = stablehlo.custom_call @{name}(%0) {{api_version = 4 : i32,
        backend_config = {{by = 2.5 : f32}}}} : ({kind}) -> {kind}
      %2 = stablehlo.subtract %1, %a : {kind}
      return %2 : {kind}
    }}"""


@pytest.mark.parametrize("count", [1, 1000, 1 << 20])
def test_a_compiled_handler(client, library, count):
    name = f"scale_{count}"
    client.plugin.ffi.register(name, library.Handler, platform=WHERE)
    array = np.arange(count, dtype=np.float32)
    run = client.compile(program(name, count))
    for _ in range(20):
        assert np.array_equal(run(array), 4 * array)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("handler"), "nvcc" if IS_HARDWARE else "g++")


def build(folder, compiler):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not here")
    path = folder / ("handler.cu" if compiler == "nvcc" else "handler.cc")
    path.write_text(SOURCE)
    fpic = ["-Xcompiler", "-fPIC"] if compiler == "nvcc" else ["-fPIC"]
    includes = ["-I", jax.ffi.include_dir()]
    command = [compiler, "-std=c++17", "-O1", "-shared", *fpic, *includes, "-o", folder / "h.so"]
    done = subprocess.run([*command, path], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return ctypes.CDLL(str(folder / "h.so"))


@pytest.mark.parametrize("compiler", ["g++", "nvcc"])
def test_the_handler_compiles(tmp_path, compiler):
    """Which needs no device: what runs on one was compiled elsewhere before."""
    assert build(tmp_path, compiler).Handler


@pytest.mark.gpu("memory that only kernels see")
def test_a_function_in_python_with_cupy(client):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

    def scale(a, out, *, by):
        with cupy.cuda.Stream.from_external(Stream(client.plugin.ffi.current.stream)):
            cupy.multiply(cupy.asarray(a), cupy.float32(by), out=cupy.asarray(out))

    client.plugin.ffi.register("scale_python", scale, platform=WHERE)
    array = np.arange(1000, dtype=np.float32)
    run = client.compile(program("scale_python", 1000))
    for _ in range(20):
        assert np.array_equal(run(array), 4 * array)


class Stream:
    """One of the plugin's, as CUDA's protocol of streams shows it."""

    def __init__(self, address):
        self.address = address

    def __cuda_stream__(self):
        return 0, self.address
