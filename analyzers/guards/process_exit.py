"""Ways to end the process instead of returning a result."""

from __future__ import annotations

from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.host_calls import evidence, host_calls
from d2k.spec.finding import Status

DEFINITION = "Host code ends the process, or sends it a signal, instead of returning or raising an error."

EXITS = frozenset(
    {
        *(
            "sys.exit",
            "exit",
            "quit",
            "os._exit",
            "os.abort",
            "os.kill",
            "os.killpg",
            "os.execv",
            "os.execve",
            "os.execvp",
        ),
        *("signal.raise_signal", "signal.alarm", "signal.setitimer", "SystemExit", "_exit", "_Exit", "quick_exit"),
        *("abort", "terminate", "raise", "kill", "longjmp", "at_quick_exit"),
    }
)


def suspect(program: ProgramView) -> Suspicion | None:
    found = [one for one in host_calls(program) if one.name in EXITS]
    if not found:
        return None
    names = ", ".join(dict.fromkeys(one.name for one in found))
    return Suspicion(f"can end the process: {names}", evidence(found))


TRITON = """
import os
import sys
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(X, Y):
    BODY
    scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)
    return Y
LAST
"""
CUDA = """
#include <cstdlib>
__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(float* x, int n) {
  scale<<<n / 256, 256>>>(x, n);
  BODY
}
"""
MAIN = 'if __name__ == "__main__":\n    sys.exit(0)'

EXAMPLES = (
    Example("exit", "triton", TRITON.replace("BODY", "sys.exit(0)").replace("LAST", ""), Status.PRESENT),
    Example("kill", "triton", TRITON.replace("BODY", "os.kill(os.getppid(), 9)").replace("LAST", ""), Status.PRESENT),
    Example(
        "error",
        "triton",
        TRITON.replace("BODY", 'if X.dim() != 1:\n        raise ValueError("one axis")').replace("LAST", ""),
        Status.ABSENT,
        trap="an error that is raised ends no process",
    ),
    Example(
        "script",
        "triton",
        TRITON.replace("BODY", "pass").replace("LAST", MAIN),
        Status.ABSENT,
        trap="code that runs as a script only",
    ),
    Example("exit", "cuda", CUDA.replace("BODY", "exit(0);"), Status.PRESENT),
    Example("in a comment", "cuda", CUDA.replace("BODY", "// exit(0);"), Status.ABSENT, trap="comment"),
)
