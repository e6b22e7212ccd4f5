"""Macros that are known without their definition: attributes, unroll pragmas, and what compilers predefine."""

from __future__ import annotations

import re

UNROLL = "unroll"
NO_UNROLL = "no_unroll"

KEYWORD_MACROS: dict[str, str] = {
    "CUTLASS_DEVICE": "__device__ __forceinline__",
    "CUTLASS_HOST_DEVICE": "__host__ __device__ __forceinline__",
    "CUTLASS_HOST": "__host__",
    "CUTLASS_GLOBAL": "__global__ static",
    "CUTE_DEVICE": "__device__ __forceinline__",
    "CUTE_HOST_DEVICE": "__host__ __device__ __forceinline__",
    "CUTE_HOST": "__host__",
    "TL_DEVICE": "__device__ __forceinline__",
    "TL_DEVICE_NOINLINE": "__device__",
    "FLASHINFER_INLINE": "__device__ __forceinline__",
    "C10_HOST_DEVICE": "__host__ __device__",
    "C10_DEVICE": "__device__",
    "C10_HOST": "__host__",
    "C10_ALWAYS_INLINE": "__forceinline__",
    "GPU_LAMBDA": "__device__",
    "_CCCL_DEVICE": "__device__",
    "_CCCL_HOST": "__host__",
    "_CCCL_HOST_DEVICE": "__host__ __device__",
    "_CCCL_DEVICE_API": "__device__",
    "_CCCL_HOST_DEVICE_API": "__host__ __device__",
    "_CCCL_API": "__host__ __device__",
    "_CCCL_FORCEINLINE": "__forceinline__",
    "CUB_RUNTIME_FUNCTION": "__host__",
    "KITTENS_DEVICE": "__device__",
    "__CUDA_HOSTDEVICE__": "__host__ __device__",
    "__CUDA_FP16_DECL__": "__device__",
    "__CUDA_BF16_DECL__": "__device__",
    "__CUDA_ALIGN__": "",
    "__restrict": "__restrict__",
    "__noinline__": "",
    "__inline__": "inline",
    "__forceinline": "__forceinline__",
    "__always_inline": "__forceinline__",
    "__INLINE__": "inline",
    "FORCE_INLINE": "__forceinline__",
    "TORCH_API": "",
    "C10_API": "",
    "C10_EXPORT": "",
    "TORCH_CUDA_CU_API": "",
    "TVM_DLL": "",
    "noexcept": "",
    "__extension__": "",
    "CUTLASS_CONSTEXPR_IF_CXX17": "constexpr",
    "CUTE_INLINE_CONSTANT": "static constexpr",
    "CUTE_STATIC_CONSTEXPR": "static constexpr",
    "CUTE_GRID_CONSTANT": "__grid_constant__",
    "CUTLASS_GRID_CONSTANT": "__grid_constant__",
}
"""Words that stand where attributes stand, and what they mean."""

PRAGMA_MACROS: dict[str, str] = {
    "CUTLASS_PRAGMA_UNROLL": UNROLL,
    "CUTE_UNROLL": UNROLL,
    "PRAGMA_UNROLL": UNROLL,
    "CUTLASS_PRAGMA_NO_UNROLL": NO_UNROLL,
    "CUTE_NO_UNROLL": NO_UNROLL,
    "CUTLASS_GEMM_LOOP": NO_UNROLL,
}

ATTRIBUTES_WITH_ARGUMENTS = frozenset(
    {
        "__launch_bounds__",
        "__cluster_dims__",
        "__maxnreg__",
        "__block_size__",
        "__align__",
        "alignas",
        "__attribute__",
        "__declspec",
        "__builtin_align__",
        "C10_LAUNCH_BOUNDS_1",
        "C10_LAUNCH_BOUNDS_2",
        "C10_LAUNCH_BOUNDS_0",
        "CUTLASS_ALIGNAS",
        "CUTE_ALIGNAS",
        "KITTENS_ALIGN_AS",
        "__nv_pure__",
    }
)
"""Removed from the text; their arguments are kept as marks."""

ATTRIBUTE_SHAPE = re.compile(r"[A-Z_][A-Z0-9]*(?:_[A-Z0-9]+)*\Z")
DECLARATION_FOLLOWS = re.compile(
    r"\s+(?:void|auto|static|inline|constexpr|bool|int|float|double|unsigned|char|short|long|template|typename|friend|explicit"
    r"|virtual|__device__|__host__|__global__|__forceinline__|uint\d+_t|int\d+_t|size_t|half|half2|float[1-4]|cudaError_t)\b"
)

_GRID_STRIDE = " i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)"
FUNCTION_MACROS = (
    f"CUDA_KERNEL_LOOP(i, n) for (int{_GRID_STRIDE}",
    f"CUDA_1D_KERNEL_LOOP(i, n) for (int{_GRID_STRIDE}",
    f"CUDA_KERNEL_LOOP_TYPE(i, n, type) for (type{_GRID_STRIDE}",
    f"CUDA_1D_KERNEL_LOOP_T(i, n, type) for (type{_GRID_STRIDE}",
)
"""Loops that many projects take from a header, each with its meaning."""

FALSE_MACROS = frozenset(
    {
        "USE_ROCM",
        "__HIP__",
        "__HIPCC__",
        "__HIP_PLATFORM_AMD__",
        "__HIP_PLATFORM_HCC__",
        "__HIP_DEVICE_COMPILE__",
        "HIPIFY_PERL_INVOCATION",
        "_MSC_VER",
        "_WIN32",
        "WIN32",
        "_WIN64",
        "__APPLE__",
        "__clang__",
        "__CUDACC_DEBUG__",
        "__INTELLISENSE__",
        "__INTEL_COMPILER",
        "__CUDACC_RTC__",
        "__MUSACC__",
        "__SYCL_DEVICE_ONLY__",
        "__CLION_IDE__",
    }
)


def predefined(target: str) -> dict[str, str]:
    """Macros of nvcc for `target`, such as `sm_100a`, with their values."""
    number = re.search(r"(\d+)([af]?)", target)
    arch, feature = (int(number.group(1)), number.group(2)) if number else (100, "a")
    macros = {
        "__CUDA_ARCH__": str(arch * 10),
        "__CUDACC__": "1",
        "__NVCC__": "1",
        "__CUDACC_VER_MAJOR__": "13",
        "__CUDACC_VER_MINOR__": "0",
        "__CUDACC_VER_BUILD__": "48",
        "CUDA_VERSION": "13000",
        "CUDART_VERSION": "13000",
        "__CUDA_API_VERSION": "13000",
        "__cplusplus": "201703",
        "__GNUC__": "13",
        "__linux__": "1",
        "__x86_64__": "1",
    }
    if feature:
        macros["__CUDA_ARCH_FAMILY_SPECIFIC__"] = str(arch * 10)
        macros[f"__CUDA_ARCH_FEAT_SM{arch}_F"] = "1"
    if feature == "a":
        macros["__CUDA_ARCH_SPECIFIC__"] = str(arch * 10)
        macros[f"__CUDA_ARCH_FEAT_SM{arch}_ALL"] = "1"
    return macros
