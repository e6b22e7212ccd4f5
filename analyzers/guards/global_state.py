"""Settings of the process that outlive the call."""

from __future__ import annotations

from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.host_calls import HostCall, evidence, host_calls
from d2k.analyzers.patterns.hosts import short
from d2k.spec.finding import Status

DEFINITION = (
    "Host code changes a setting that outlives the call: flags of torch's backends, default types and devices, "
    "determinism, random state, limits of the device such as persisting L2 lines, the environment."
)

FLAGS = ("torch.backends.", "torch._dynamo.config.", "torch._inductor.config.", "torch.autograd.", "torch._C.")
SETTERS = frozenset(
    {
        *("set_default_dtype", "set_default_device", "set_default_tensor_type", "use_deterministic_algorithms"),
        *("set_deterministic_debug_mode", "set_float32_matmul_precision", "set_num_threads", "set_grad_enabled"),
        *("set_num_interop_threads", "set_flush_denormal", "set_warn_always", "set_autocast_enabled", "manual_seed"),
        *("manual_seed_all", "set_rng_state", "set_per_process_memory_fraction", "set_sync_debug_mode"),
        *("preferred_linalg_library", "preferred_blas_library", "enable_flash_sdp", "enable_math_sdp"),
        *("enable_mem_efficient_sdp", "enable_cudnn_sdp", "allow_tf32"),
    }
)
DEVICE = frozenset(
    {
        *("cudaDeviceSetLimit", "cuCtxSetLimit", "cudaStreamSetAttribute", "cuStreamSetAttribute", "cudaDeviceReset"),
        *("cudaDeviceSetCacheConfig", "cudaDeviceSetSharedMemConfig", "cudaSetDeviceFlags", "cudaMemPoolSetAttribute"),
        *("cudaCtxResetPersistingL2Cache", "cuCtxSetCacheConfig", "cudaDeviceSetMemPool"),
    }
)
CONTEXT = frozenset({"setAllowTF32CuBLAS", "setAllowTF32CuDNN", "setDeterministicAlgorithms", "setBenchmarkCuDNN"})
ENVIRONMENT = frozenset({"os.putenv", "os.unsetenv", "setenv", "putenv", "unsetenv", "os.environ.update"})
OTHER = frozenset({"gc.disable", "gc.freeze", "sys.setrecursionlimit", "sys.setswitchinterval", "os.sched_setaffinity"})


def suspect(program: ProgramView) -> Suspicion | None:
    found = [(one, what) for one in host_calls(program) if (what := _changes(one))]
    if not found:
        return None
    names = ", ".join(dict.fromkeys(what for _, what in found))
    return Suspicion(f"changes settings that outlive the call: {names}", evidence(one for one, _ in found))


def _changes(call: HostCall) -> str:
    """The setting that a call changes, "" if it changes none."""
    target = call.op.attrs.get("target")
    if call.name == "setattr" and isinstance(target, str) and target.startswith(FLAGS):
        return target
    if call.name == "setitem" and "os.environ" in call.constants()[:1]:
        return "os.environ"
    if call.name in DEVICE | ENVIRONMENT | OTHER:
        return call.name
    last = short(call.name)
    if last in SETTERS and call.name.startswith(("torch.", "at.")):
        return call.name
    return last if last in CONTEXT else ""


TRITON = """
HEAD
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

class Scale:
    def __init__(self):
        self.size = 1024

def run(X, Y):
    BODY
    scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)
    return Y
"""
CUDA = """
__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(float* x, int n) {
  BODY
  scale<<<n / 256, 256>>>(x, n);
}
"""

EXAMPLES = (
    Example(
        "precision of products",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", "torch.backends.cuda.matmul.allow_tf32 = True"),
        Status.PRESENT,
    ),
    Example(
        "default type on import",
        "triton",
        TRITON.replace("HEAD", "torch.set_default_dtype(torch.float16)").replace("BODY", "pass"),
        Status.PRESENT,
    ),
    Example(
        "fields of an object",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", "Scale().size = 2048"),
        Status.ABSENT,
        trap="look-alike: an assignment to an object of its own",
    ),
    Example(
        "allocator of descriptors",
        "triton",
        TRITON.replace("HEAD", "").replace(
            "BODY",
            "triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device='cuda'))",
        ),
        Status.ABSENT,
        trap="what tensor maps made on the device need",
    ),
    Example(
        "persisting lines of the L2",
        "cuda",
        CUDA.replace("BODY", "cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1 << 20);"),
        Status.PRESENT,
    ),
    Example(
        "attribute of a kernel",
        "cuda",
        CUDA.replace("BODY", "cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);"),
        Status.ABSENT,
        trap="an attribute of a kernel of its own",
    ),
)
