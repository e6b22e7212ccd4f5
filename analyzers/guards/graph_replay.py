"""CUDA graphs of library calls, replayed instead of computing."""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.host_calls import HostCall, evidence, host_calls
from d2k.analyzers.patterns.hosts import short
from d2k.analyzers.patterns.libraries import library_calls
from d2k.spec.finding import Status

DEFINITION = (
    "A CUDA graph is captured around calls of a library and replayed; graphs of kernels of one's own do not count."
)

CAPTURES = frozenset(
    {
        "torch.cuda.graph",
        "torch.cuda.make_graphed_callables",
        "capture_begin",
        "cudaStreamBeginCapture",
        "cuStreamBeginCapture",
    }
)
REPLAYS = frozenset({"replay", "cudaGraphLaunch", "cuGraphLaunch"})


def suspect(program: ProgramView) -> Suspicion | None:
    calls = list(host_calls(program))
    captures = [one for one in calls if one.name in CAPTURES or short(one.name) in CAPTURES]
    replayed = any(short(one.name) in REPLAYS for one in calls) or any(_calls_itself(one) for one in captures)
    if not captures or not replayed:
        return None
    captured = list(_captured(program, captures))
    if not captured:
        return None
    names = ", ".join(dict.fromkeys(one.name.removeprefix(".") for one in captured))
    return Suspicion(f"replays a graph of library calls: {names}", evidence((captures[0], *captured)))


def _calls_itself(capture: HostCall) -> bool:
    """The result of the capture is called like a function."""
    return short(capture.name) == "make_graphed_callables"


def _captured(program: ProgramView, captures: list[HostCall]) -> Iterator[HostCall]:
    """Library calls that stand behind the beginning of a capture in its function."""
    for one in library_calls(program):
        if one.work != "template" and any(
            one.call.host == capture.host and one.call.value > capture.value for capture in captures
        ):
            yield one.call


TRITON = """
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(X, W, Y):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        BODY
    graph.replay()
    return Y
"""
CUDA = """
#include <cublas_v2.h>
__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(cublasHandle_t handle, const float* a, const float* b, float* c, int n, cudaStream_t stream) {
  float one = 1.f, zero = 0.f;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  BODY
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphLaunch(exec, stream);
}
"""

EXAMPLES = (
    Example("product in a graph", "triton", TRITON.replace("BODY", "Y.copy_(torch.mm(X, W))"), Status.PRESENT),
    Example(
        "kernel of its own in a graph",
        "triton",
        TRITON.replace("BODY", "scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)"),
        Status.ABSENT,
        trap="a graph of kernels of one's own",
    ),
    Example(
        "cublas in a graph",
        "cuda",
        CUDA.replace("BODY", "cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, b, n, &zero, c, n);"),
        Status.PRESENT,
    ),
    Example(
        "kernel of its own in a graph",
        "cuda",
        CUDA.replace("BODY", "scale<<<n * n / 256, 256, 0, stream>>>(c, n * n);"),
        Status.ABSENT,
        trap="a graph of kernels of one's own",
    ),
)
