"""Who ships a shared library that a plugin needs (layer 1; data).

Owns the table from a library's name to the package that brings it; must not look anything up.
"""

from __future__ import annotations

#: Beginning of the library's name -> (who ships it, how to get it). The longest match wins.
_SHIPPERS: dict[str, tuple[str, str]] = {
    "libstdc++.so": ("the C++ runtime of GCC", "install the system package libstdc++6 (Debian)"),
    "libgcc_s.so": ("the C runtime of GCC", "install the system package libgcc-s1 (Debian)"),
    "libgomp.so": ("the OpenMP runtime of GCC", "install the system package libgomp1 (Debian)"),
    "libomp.so": ("the OpenMP runtime of LLVM", "install the system package libomp5 (Debian)"),
    "libz.so": ("zlib", "install the system package zlib1g (Debian)"),
    "libcuda.so": ("the NVIDIA driver", "install the NVIDIA driver of this machine"),
    "libnvidia-ml.so": ("the NVIDIA driver", "install the NVIDIA driver of this machine"),
    "libcudart.so": ("NVIDIA CUDA runtime", "pip install 'pjrt-hub[cuda]'"),
    "libcublas": ("NVIDIA cuBLAS", "pip install 'pjrt-hub[cuda]'"),
    "libcudnn": ("NVIDIA cuDNN", "pip install 'pjrt-hub[cuda]'"),
    "libcufft": ("NVIDIA cuFFT", "pip install 'pjrt-hub[cuda]'"),
    "libcupti": ("NVIDIA CUPTI", "pip install 'pjrt-hub[cuda]'"),
    "libcusolver": ("NVIDIA cuSOLVER", "pip install 'pjrt-hub[cuda]'"),
    "libcusparse": ("NVIDIA cuSPARSE", "pip install 'pjrt-hub[cuda]'"),
    "libnccl.so": ("NVIDIA NCCL", "pip install 'pjrt-hub[cuda]'"),
    "libnvJitLink": ("NVIDIA nvJitLink", "pip install 'pjrt-hub[cuda]'"),
    "libnvrtc": ("NVIDIA NVRTC", "pip install 'pjrt-hub[cuda]'"),
    "libnvshmem": ("NVIDIA NVSHMEM", "pip install 'pjrt-hub[cuda]'"),
    "libMIOpen.so": ("AMD ROCm", "install ROCm 7 below /opt/rocm"),
    "libamd_smi.so": ("AMD ROCm", "install ROCm 7 below /opt/rocm"),
    "libamdhip64.so": ("AMD ROCm", "install ROCm 7 below /opt/rocm"),
    "libhip": ("AMD ROCm", "install ROCm 7 below /opt/rocm"),
    "libhsa-runtime64.so": ("AMD ROCm", "install ROCm 7 below /opt/rocm"),
    "librccl.so": ("AMD ROCm", "install ROCm 7 below /opt/rocm"),
    "librocblas.so": ("AMD ROCm", "install ROCm 7 below /opt/rocm"),
    "librocm_sysdeps": ("AMD ROCm", "install ROCm 7 below /opt/rocm"),
    "librocprofiler": ("AMD ROCm", "install ROCm 7 below /opt/rocm"),
    "libOpenCL.so": ("Intel OpenCL runtime", "pip install intel-opencl-rt"),
    "libccl.so": ("Intel oneCCL", "pip install oneccl"),
    "libhwloc.so": ("hwloc", "install the system package libhwloc15 (Debian)"),
    "libimf.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libintlc.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libiomp5.so": ("Intel OpenMP runtime", "pip install intel-openmp"),
    "libirc.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libirng.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libmkl_": ("Intel oneMKL", "pip install 'pjrt-hub[oneapi]'"),
    "libmpi.so.12": ("Intel MPI", "pip install impi-rt"),
    "libpti_view.so": ("Intel PTI", "pip install intel-pti"),
    "libsvml.so": ("Intel compiler runtime", "pip install intel-cmplr-lib-rt"),
    "libsycl.so": ("Intel SYCL runtime", "pip install intel-sycl-rt"),
    "libtbb": ("Intel TBB", "pip install tbb"),
    "libtcm.so": ("Intel TCM", "pip install tcmlib"),
    "libumf.so": ("Intel UMF", "pip install umf"),
    "sycl_onednn.so": ("the plugin's own wheel", "keep it in service/gpu beside the plugin"),
    "libur_": ("Intel Unified Runtime", "pip install intel-cmplr-lib-ur"),
    "libze_": ("the Level Zero loader", "install the system package libze1 (Debian)"),
}


def shipper(library: str) -> tuple[str, str]:
    """Gives who ships a library and how to get it, two empty strings where that is unknown."""
    begin = max((key for key in _SHIPPERS if library.startswith(key)), key=len, default="")
    return _SHIPPERS.get(begin, ("", ""))
