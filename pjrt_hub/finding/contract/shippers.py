"""The packages that ship the shared libraries that plugins need (data).

Owns the table from a library's name to the package that brings it; must not look anything up.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

#: ROCm's libraries have numbers of their own; only that of libamdhip64 is known for each release.
_ROCM = "install the release of ROCm that the plugin was built for below /opt/rocm"
_CUDA = "pip install 'pjrt-hub[cuda]'"
_CUDA12 = "pip install 'pjrt-hub[cuda12]'"
_CUDA13 = "pip install 'pjrt-hub[cuda13]'"
#: The beginning of a library's name (* stands for anything) -> who ships it, and how to get it. The
#: longest match wins. The packages named held the library in November 2026. A row without a version
#: number names no package that has only some of the versions.
_SHIPPERS: dict[str, tuple[str, str]] = {
    "libstdc++.so": ("the C++ runtime of GCC", "install the system package libstdc++6 (Debian)"),
    "libgcc_s.so": ("the C runtime of GCC", "install the system package libgcc-s1 (Debian)"),
    "libgomp.so": ("the OpenMP runtime of GCC", "install the system package libgomp1 (Debian)"),
    "libomp.so": ("the OpenMP runtime of LLVM", ""),
    "libomp.so.5": ("the OpenMP runtime of LLVM", "install the system package libomp5 (Debian)"),
    "libz.so": ("zlib", "install the system package zlib1g (Debian)"),
    "msvcp140": ("the Microsoft Visual C++ runtime", "install the Visual C++ Redistributable"),
    "libcuda.so": ("the NVIDIA driver", "install the NVIDIA driver of this machine"),
    "libnvidia-ml.so": ("the NVIDIA driver", "install the NVIDIA driver of this machine"),
    "nvcuda.dll": ("the NVIDIA driver", "install the NVIDIA driver of this machine"),
    "libcudart.so": ("NVIDIA CUDA runtime", ""),
    "libcudart.so.12": ("NVIDIA CUDA runtime", _CUDA12),
    "libcudart.so.13": ("NVIDIA CUDA runtime", _CUDA13),
    "libcublas": ("NVIDIA cuBLAS", ""),
    "libcublas*.so.12": ("NVIDIA cuBLAS", _CUDA12),
    "libcublas*.so.13": ("NVIDIA cuBLAS", _CUDA13),
    "libcudnn": ("NVIDIA cuDNN", ""),
    "libcudnn*.so.9": ("NVIDIA cuDNN", _CUDA),
    "libcufft": ("NVIDIA cuFFT", ""),
    "libcufft*.so.11": ("NVIDIA cuFFT", _CUDA12),
    "libcufft*.so.12": ("NVIDIA cuFFT", _CUDA13),
    "libcupti": ("NVIDIA CUPTI", ""),
    "libcupti.so.12": ("NVIDIA CUPTI", _CUDA12),
    "libcupti.so.13": ("NVIDIA CUPTI", _CUDA13),
    "libcusolver": ("NVIDIA cuSOLVER", ""),
    "libcusolver*.so.11": ("NVIDIA cuSOLVER", _CUDA12),
    "libcusolver*.so.12": ("NVIDIA cuSOLVER", _CUDA13),
    "libcusparse": ("NVIDIA cuSPARSE", ""),
    "libcusparse.so.12": ("NVIDIA cuSPARSE", _CUDA),
    "libnccl.so": ("NVIDIA NCCL", ""),
    "libnccl.so.2": ("NVIDIA NCCL", _CUDA),
    "libnvJitLink": ("NVIDIA nvJitLink", ""),
    "libnvJitLink.so.12": ("NVIDIA nvJitLink", _CUDA12),
    "libnvJitLink.so.13": ("NVIDIA nvJitLink", _CUDA13),
    "libnvrtc": ("NVIDIA NVRTC", ""),
    "libnvrtc.so.12": ("NVIDIA NVRTC", _CUDA12),
    "libnvrtc.so.13": ("NVIDIA NVRTC", _CUDA13),
    "libnvshmem": ("NVIDIA NVSHMEM", ""),
    "libnvshmem_host.so.3": ("NVIDIA NVSHMEM", _CUDA),
    "libMIOpen.so": ("AMD ROCm", _ROCM),
    "libamd_smi.so": ("AMD ROCm", _ROCM),
    "libamdhip64.so": ("AMD ROCm", _ROCM),
    "libamdhip64.so.6": ("AMD ROCm 6", "install ROCm 6 below /opt/rocm"),
    "libamdhip64.so.7": ("AMD ROCm 7", "install ROCm 7 below /opt/rocm"),
    "libhip": ("AMD ROCm", _ROCM),
    "libhsa-runtime64.so": ("AMD ROCm", _ROCM),
    "librccl.so": ("AMD ROCm", _ROCM),
    "librocblas.so": ("AMD ROCm", _ROCM),
    "librocm_sysdeps": ("AMD ROCm", _ROCM),
    "librocprofiler": ("AMD ROCm", _ROCM),
    "libOpenCL.so": ("the OpenCL loader", "pip install intel-opencl-rt"),
    "libccl.so": ("Intel oneCCL", "pip install oneccl"),
    "libccl.so.2": ("Intel oneCCL", "pip install 'oneccl>=2022'"),
    "libhwloc.so": ("hwloc", ""),
    "libhwloc.so.15": ("hwloc", "install the system package libhwloc15 (Debian)"),
    "libimf.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libintlc.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libiomp5.so": ("Intel OpenMP runtime", "pip install intel-openmp"),
    "libirc.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libirng.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libmkl_": ("Intel oneMKL", ""),
    "libmkl_*.so.2": ("Intel oneMKL", "pip install 'mkl==2025.*'"),
    "libmkl_*.so.3": ("Intel oneMKL", "pip install 'mkl==2026.*'"),
    "libmkl_sycl_*.so.5": ("Intel oneMKL", "pip install 'pjrt-hub[oneapi]'"),
    "libmkl_sycl_blas.so.6": ("Intel oneMKL", "pip install 'onemkl-sycl-blas==2026.*'"),
    "libmpi.so.12": ("Intel MPI", "pip install impi-rt"),
    "libpti_view.so": ("Intel PTI", ""),
    "libpti_view.so.0": ("Intel PTI", "pip install 'intel-pti<1'"),
    "libpti_view.so.1": ("Intel PTI", "pip install 'intel-pti>=1'"),
    "libsvml.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libsycl.so": ("Intel SYCL runtime", ""),
    "libsycl.so.7": ("Intel SYCL runtime", "pip install 'intel-sycl-rt==2024.*'"),
    "libsycl.so.8": ("Intel SYCL runtime", "pip install 'intel-sycl-rt==2025.*'"),
    "libsycl.so.9": ("Intel SYCL runtime", "pip install 'intel-sycl-rt==2026.*'"),
    "libtbb": ("Intel TBB", ""),
    "libtbb.so.2": ("Intel TBB", "pip install 'tbb==2020.*'"),
    "libtbb.so.12": ("Intel TBB", "pip install 'tbb>=2021'"),
    "libtbbmalloc": ("Intel TBB", "pip install tbb"),
    "libtcm.so": ("Intel TCM", "pip install tcmlib"),
    "libumf.so": ("Intel UMF", ""),
    "libumf.so.0": ("Intel UMF", "pip install 'umf<1'"),
    "libumf.so.1": ("Intel UMF", "pip install 'umf>=1'"),
    "sycl_onednn.so": ("the plugin's own wheel", "keep it in service/gpu beside the plugin"),
    "libur_": ("Intel Unified Runtime", "pip install intel-cmplr-lib-ur"),
    "libur_adapter_opencl": ("Intel Unified Runtime", "pip install 'intel-cmplr-lib-ur==2025.*'"),
    "libze_": ("Level Zero", ""),
    "libze_loader.so.1": ("the Level Zero loader", "install the system package libze1 (Debian)"),
}


def shipper(library: str) -> tuple[str, str]:
    """Return who ships a library and how to get it, empty strings if unknown."""
    fitting = (key for key in _SHIPPERS if _begins(library, key))
    return _SHIPPERS.get(max(fitting, key=len, default=""), ("", ""))


def _begins(library: str, key: str) -> bool:
    """Check whether a name begins with a key; a number that ends the key must match as a whole."""
    if not fnmatchcase(library, f"{key}*"):
        return False
    return not key[-1].isdigit() or not fnmatchcase(library, f"{key}[0-9]*")
