"""Files, processes and connections outside the submission."""

from __future__ import annotations

from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.host_calls import HostCall, evidence, host_calls
from d2k.analyzers.patterns.hosts import short
from d2k.spec.finding import Status

DEFINITION = (
    "Host code writes files, reads files other than those beside it, runs programs or opens connections; messages to "
    "standard output and error do not count."
)

WRITES = frozenset(
    {
        *("os.remove", "os.unlink", "os.rename", "os.replace", "os.mkdir", "os.makedirs", "os.rmdir", "os.symlink"),
        *("os.link", "os.truncate", "os.chmod", "os.write", "os.mkfifo", "os.memfd_create", "torch.save", "numpy.save"),
        *("numpy.savez", "pickle.dump", "json.dump", "ofstream", "fopen", "freopen", "fwrite", "unlink", "rename"),
        *("mkdir", "shm_open", "mmap.mmap", "logging.FileHandler", "sqlite3.connect", "shelve.open"),
    }
)
READS = frozenset(
    {
        "torch.load",
        "numpy.load",
        "pickle.load",
        "ifstream",
        "fstream",
        "os.open",
        "numpy.fromfile",
        "numpy.memmap",
        "torch.from_file",
        "os.listdir",
        "os.scandir",
        "os.walk",
        "glob.glob",
    }
)
PROGRAMS = ("subprocess.", "socket.", "urllib.", "requests.", "http.", "shutil.", "tempfile.", "ftplib.", "paramiko.")
RUNS = frozenset({"os.system", "os.popen", "os.spawnl", "os.spawnv", "system", "popen", "dlopen", "os.posix_spawn"})
METHODS = frozenset({".write_text", ".write_bytes", ".touch", ".unlink", ".rmdir", ".symlink_to", ".hardlink_to"})
OWN = "__file__"


def suspect(program: ProgramView) -> Suspicion | None:
    found = [(one, what) for one in host_calls(program) if (what := _touches(one))]
    if not found:
        return None
    names = ", ".join(dict.fromkeys(what for _, what in found))
    return Suspicion(f"reaches outside the submission: {names}", evidence(one for one, _ in found))


def _touches(call: HostCall) -> str:
    """What a call does outside, "" if nothing."""
    if call.name in RUNS or call.name.startswith(PROGRAMS):
        return call.name
    if call.name in WRITES or call.name in METHODS:
        return f"writes ({short(call.name)})"
    if call.name in ("open", "io.open", "codecs.open", ".open"):
        if _writes(call):
            return "opens a file for writing"
        return "" if _is_beside(call) else "opens a file"
    if call.name in READS or call.name in (".read_text", ".read_bytes"):
        return "" if _is_beside(call) else f"reads ({short(call.name)})"
    return ""


def _writes(call: HostCall) -> bool:
    keywords = call.op.attrs.get("keywords")
    arguments = call.constants()
    names = keywords if isinstance(keywords, tuple) else ()
    positional = arguments[: len(arguments) - len(names)]
    named = dict(zip(names, arguments[len(arguments) - len(names) :], strict=True))
    at = 0 if call.name == ".open" else 1
    mode = named.get("mode", positional[at] if len(positional) > at else "r")
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


def _is_beside(call: HostCall) -> bool:
    """The path is made from the file's own."""
    return any(
        call.view.op(at).name == OWN or call.view.op(at).attrs.get("value") == OWN
        for arg in call.op.args
        for at in (call.view.slice(arg) if arg >= 0 else ())
    )


TRITON = """
import os
import sys
HEAD
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(X, Y):
    BODY
    scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)
    return Y
"""
CUDA = """
#include <fstream>
#include <cstdio>
__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(float* x, int n) {
  BODY
  scale<<<n / 256, 256>>>(x, n);
}
"""

EXAMPLES = (
    Example(
        "file for writing",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", 'with open("/tmp/result", "w") as file:\n        file.write("1.0")'),
        Status.PRESENT,
    ),
    Example(
        "program",
        "triton",
        TRITON.replace("HEAD", "import subprocess").replace("BODY", 'subprocess.run(["nvidia-smi", "-r"])'),
        Status.PRESENT,
    ),
    Example(
        "source beside the file",
        "triton",
        TRITON.replace("HEAD", 'SOURCE = open(os.path.join(os.path.dirname(__file__), "kernel.cu")).read()').replace(
            "BODY", "pass"
        ),
        Status.ABSENT,
        trap="reads a file of the submission",
    ),
    Example(
        "messages",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", 'print("launching", file=sys.stderr)'),
        Status.ABSENT,
        trap="messages to standard error",
    ),
    Example("stream of a file", "cuda", CUDA.replace("BODY", 'std::ofstream file("/tmp/result");'), Status.PRESENT),
    Example(
        "message",
        "cuda",
        CUDA.replace("BODY", 'fprintf(stderr, "%d", n);'),
        Status.ABSENT,
        trap="messages to standard error",
    ),
)
