"""CUDA in Python strings: what flows into a compiler, with every line mapped back to where it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from d2k.analyzers.triton.embedded import EmbeddedSource, read_sources

INLINE = "from torch.utils.cpp_extension import load_inline\n"


def sources(code: str) -> tuple[EmbeddedSource, ...]:
    found = read_sources("k.py", code)
    for one in found:
        check_lines(code, one)
    return found


def check_lines(code: str, source: EmbeddedSource) -> None:
    """A line that names something unusual stands on the line that it is mapped to."""
    written = code.split("\n")
    lines = source.text.split("\n")
    assert len(lines) == len(source.lines)
    for line, at in zip(lines, source.lines, strict=True):
        first = line.split()[:1]
        if first and first[0].startswith("mark"):
            assert first[0].rstrip(";") in written[at - 1], (line, at)


def test_a_triple_quoted_string() -> None:
    code = (
        INLINE
        + '''
SRC = """
#include <mark_a>
__global__ void mark_k() {
  mark_b;
}
"""
mod = load_inline("m", cpp_sources="void f();", cuda_sources=SRC, functions=["f"])
'''
    )
    cpp, cuda = sources(code)
    assert (cpp.sink, cuda.sink) == ("load_inline.cpp_sources", "load_inline.cuda_sources")
    assert cuda.lines == (3, 4, 5, 6, 7, 8)
    assert cuda.text.split("\n")[2] == "__global__ void mark_k() {"
    assert cuda.place.line == 9


def test_adjacent_literals_and_escapes() -> None:
    code = (
        INLINE
        + '''
SRC = (
    "__global__ void k() {\\n"
    # a comment between
    "  mark_one;\\n  mark_one_b;\\n"
    r"""  asm("mark_two\\n");
  mark_three;"""
    "\\n}"
)
load_inline("m", "", SRC)
'''
    )
    (cuda,) = sources(code)
    assert cuda.lines == (4, 6, 6, 7, 8, 9)
    assert cuda.text.split("\n")[3] == '  asm("mark_two\\n");'


def test_line_continuations_inside_a_string() -> None:
    code = (
        INLINE
        + '''
SRC = """\\
__global__ void k() { \\
mark_joined; }
mark_next;"""
load_inline("m", "", SRC)
'''
    )
    (cuda,) = sources(code)
    assert cuda.text == "__global__ void k() { mark_joined; }\nmark_next;"
    assert cuda.lines[1] == 6


@pytest.mark.parametrize(
    "expression",
    [
        "HEAD + BODY",
        "f'{HEAD}{BODY}'",
        "'\\n'.join([HEAD, BODY])",
        "'%s%s' % (HEAD, BODY)",
        "'{}{b}'.format(HEAD, b=BODY)",
        "'HEAD@'.replace('HEAD', HEAD).replace('@', BODY)",
        "string.Template('$head${body}').substitute(head=HEAD, body=BODY)",
        "TABLE['head'] + TABLE['body']",
        "(HEAD + BODY).encode().decode()",
        "make(BODY)",
        "textwrap.dedent(HEAD + BODY)",
        "Holder.SRC",
        "Holder().text()",
        "HEAD + BODY if True else ''",
        "[HEAD, BODY]",
    ],
)
def test_strings_are_followed(expression: str) -> None:
    code = f'''{INLINE}import string, textwrap
HEAD = """mark_head;
__global__ void k() {{
"""
BODY = """mark_body;
}}"""
TABLE = {{"head": HEAD, "body": BODY}}

def make(body, head=HEAD):
    text = head
    text += body
    return text

class Holder:
    SRC = HEAD + BODY
    def __init__(self):
        self.src = HEAD + BODY
    def text(self):
        return self.src

def build():
    src = {expression}
    return load_inline(name="m", cpp_sources="", cuda_sources=src)
'''
    (cuda,) = sources(code)
    assert [line for line in cuda.text.split("\n") if "mark" in line] == ["mark_head;", "mark_body;"]
    assert [at for line, at in zip(cuda.text.split("\n"), cuda.lines, strict=True) if "mark" in line] == [3, 6]


def test_values_in_formatted_strings() -> None:
    code = (
        INLINE
        + '''
TILE = 2 * 64
def build(stages):
    src = f"""
__global__ void k() {{
  constexpr int tile = {TILE};
  constexpr int stages = {stages};
  float x = {1.5:.3f}f;
  mark_end;
}}"""
    return load_inline("m", "", cuda_sources=[src])
'''
    )
    (cuda,) = sources(code)
    assert "tile = 128;" in cuda.text
    assert "stages = D2K_UNKNOWN_stages;" in cuda.text
    assert "x = 1.500f;" in cuda.text
    assert "void k() {" in cuda.text


def test_arguments_are_followed_through_functions() -> None:
    code = (
        INLINE
        + """
def build(source, value=3):
    return load_inline("m", "", source.replace("VALUE", str(value)))

A = "__global__ void mark_a() { int x = VALUE; }"
B = "__global__ void mark_b() {}"
build(A, 7)
build(source=B)
"""
    )
    first, second = sources(code)
    assert "mark_a() { int x = 7; }" in first.text
    assert "mark_b" in second.text


SINKS = {
    "cupy.RawModule": "import cupy as cp\ncp.RawModule(code=SRC, options=('-std=c++17',))",
    "cupy.RawKernel": "import cupy\ncupy.RawKernel(SRC, 'k')",
    "nvrtc": "from cuda.bindings import nvrtc\nnvrtc.nvrtcCreateProgram(SRC.encode(), b'k.cu', 0, [], [])",
    "old nvrtc": "from cuda import nvrtc\nnvrtc.nvrtcCreateProgram(str.encode(SRC), b'k.cu', 0, [], [])",
    "cuda.core": "from cuda.core.experimental import Program\nProgram(SRC, code_type='c++')",
    "torch.cuda": "import torch\ntorch.cuda._compile_kernel(SRC, 'k')",
    "module": "import torch.utils.cpp_extension as ext\next.load_inline('m', '', [SRC])",
    "local import": "def f():\n    from torch.utils import cpp_extension\n    cpp_extension.load_inline('m', '', SRC)",
    "pycuda": "from pycuda.compiler import SourceModule\nSourceModule(SRC)",
    "tvm": "import tvm_ffi\ntvm_ffi.cpp.load_inline('m', cuda_sources=SRC)",
    "written file": "from torch.utils.cpp_extension import load\nfrom pathlib import Path\n"
    "Path('/tmp/k.cu').write_text(SRC)\nload('m', ['/tmp/k.cu'])",
    "nvcc": "import subprocess\nwith open('/tmp/k.cu', 'w') as f:\n    f.write(SRC)\n"
    "subprocess.run(['nvcc', '/tmp/k.cu'])",
}


@pytest.mark.parametrize("sink", sorted(SINKS))
def test_compiling_calls(sink: str) -> None:
    code = 'SRC = r"""\nextern "C" __global__ void mark_k() {}\n"""\n' + SINKS[sink] + "\n"
    (cuda,) = [one for one in sources(code) if one.text.strip()]
    assert "mark_k" in cuda.text
    assert cuda.lines[1] == 2


@pytest.mark.parametrize(
    "code",
    [
        'PROMPT = "write a __global__ kernel"\nprint(PROMPT)',
        'FORBIDDEN = ["__global__", "cudaMalloc"]\nassert not any(w in text for w in FORBIDDEN)',
        'def load_inline(**k): pass\nload_inline(cuda_sources="__global__ void k() {}")',
        'import other\nother.load_inline("m", "", "__global__ void k() {}")',
        'SRC = "__global__ void k() {}"\nopen("notes.txt", "w").write(SRC)',
    ],
)
def test_words_alone_are_no_cuda(code: str) -> None:
    assert sources(code) == ()


def test_files_beside_the_analysed_one(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("// one\n__global__ void k() {}\n")
    code = (
        "import os\nfrom torch.utils.cpp_extension import load\nhere = os.path.dirname(__file__)\n"
        "load(name='m', sources=[os.path.join(here, 'k.cu'), 'missing.cu'])\n"
    )
    (cuda,) = read_sources(str(tmp_path / "m.py"), code)
    assert cuda.path == str(tmp_path / "k.cu")
    assert cuda.lines[:2] == (1, 2)


def test_a_source_from_a_sibling_module(tmp_path: Path) -> None:
    (tmp_path / "texts.py").write_text('\n\nSRC = """\n__global__ void k() {}\n"""\n')
    code = INLINE + "from texts import SRC\nload_inline('m', '', SRC)\n"
    (cuda,) = read_sources(str(tmp_path / "m.py"), code)
    assert (cuda.path, cuda.lines) == (str(tmp_path / "texts.py"), (3, 4, 5))


def test_strings_defined_by_themselves_end() -> None:
    assert sources(INLINE + "def f(s):\n    s = s + s\n    load_inline('m', '', s)\n    f(s)\n") is not None
