"""Code that looks at who calls it, or at its environment, and acts on what it sees."""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import BodyView, ProgramView
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.host_calls import HostCall, dotted, evidence, host_calls, steered_by
from d2k.spec.facts import Kind
from d2k.spec.finding import Status

DEFINITION = (
    "Host code inspects the call stack or the process, or a branch of a function depends on an environment variable or "
    "on the command line; configuration that a module reads once, on import, does not count."
)

STACK = frozenset(
    {
        *("inspect.stack", "inspect.currentframe", "inspect.getouterframes", "inspect.trace", "inspect.getframeinfo"),
        *("sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile", "sys.gettrace", "sys.getprofile"),
        *("traceback.extract_stack", "traceback.format_stack", "traceback.walk_stack", "traceback.print_stack"),
        *("backtrace", "backtrace_symbols", "dladdr", "ptrace", "psutil.Process", "gc.get_referrers"),
    }
)
VARIABLES = frozenset({"os.getenv", "getenv", "secure_getenv", "os.environ.get", "os.environb.get"})
ENVIRONMENT = ("os.environ", "os.environb")
ARGUMENTS = ("sys.argv", "sys.modules", "sys.orig_argv")
PROCESS = "/proc/"


def suspect(program: ProgramView) -> Suspicion | None:
    stack = [one for one in host_calls(program) if one.name in STACK]
    if stack:
        return Suspicion(f"looks at the call stack or the process: {stack[0].name}", evidence(stack))
    steering = list(_steering(program))
    if steering:
        seen = "the environment or the command line"
        return Suspicion(f"a branch depends on {seen}", evidence(steering, f"branch on {seen}"))
    process = [one for one in host_calls(program) if _reads_process(one)]
    if process:
        return Suspicion("reads what the system knows about the process", evidence(process))
    return None


def _steering(program: ProgramView) -> Iterator[HostCall]:
    """Reads of the environment, inside a function, that a condition depends on."""
    for host, view, condition in steered_by(program):
        for at in sorted(view.slice(condition)):
            if _reads_environment(view, at):
                yield HostCall(host, view, at, dotted(view.op(at)))


def _reads_environment(view: BodyView, value: int) -> bool:
    op = view.op(value)
    if op.kind in (Kind.HOST_CALL, Kind.CALL) and dotted(op) in VARIABLES:
        return True
    if op.kind is Kind.CONST:
        return op.attrs.get("value") in (*ENVIRONMENT, *ARGUMENTS)
    return op.kind in (Kind.CALL, Kind.ATTRIBUTE) and dotted(op) in (*ENVIRONMENT, *ARGUMENTS)


def _reads_process(call: HostCall) -> bool:
    return any(isinstance(one, str) and one.startswith(PROCESS) for one in call.constants())


TRITON = """
import inspect
import os
import sys
HEAD
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(X, Y):
    size = 1024
    BODY
    scale[(triton.cdiv(Y.numel(), size),)](X, Y, Y.numel(), B=size)
    return Y
"""
CUDA = """
#include <cstdlib>
__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(float* x, int n) {
  BODY
  scale<<<n / 256, 256>>>(x, n);
}
"""
FRAMES = 'if any("time" in one.function for one in inspect.stack()):\n        return Y'

EXAMPLES = (
    Example("call stack", "triton", TRITON.replace("HEAD", "").replace("BODY", FRAMES), Status.PRESENT),
    Example(
        "frame of the caller",
        "triton",
        TRITON.replace("HEAD", "").replace(
            "BODY", 'if sys._getframe(1).f_code.co_name == "check":\n        size = 128'
        ),
        Status.PRESENT,
    ),
    Example(
        "environment variable in a function",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", 'if os.environ.get("BENCH") == "1":\n        return Y'),
        Status.PRESENT,
    ),
    Example(
        "configuration of the module",
        "triton",
        TRITON.replace("HEAD", 'SIZE = int(os.environ.get("SIZE", "1024"))').replace("BODY", "size = SIZE"),
        Status.ABSENT,
        trap="configuration that is read once, on import",
    ),
    Example(
        "number of devices",
        "triton",
        TRITON.replace("HEAD", "").replace(
            "BODY", "if torch.cuda.get_device_capability()[0] >= 9:\n        size = 2048"
        ),
        Status.ABSENT,
        trap="dispatch on the device",
    ),
    Example(
        "environment variable",
        "cuda",
        CUDA.replace("BODY", 'if (getenv("BENCH") != nullptr) return;'),
        Status.PRESENT,
    ),
    Example(
        "in a comment", "cuda", CUDA.replace("BODY", '// if (getenv("BENCH")) return;'), Status.ABSENT, trap="comment"
    ),
)
