"""References against independent formulations, baselines and kernels against references, for the first three tasks."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import d2k
from d2k.compiler.compile import load_task

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.runtime

ROOT = Path(__file__).resolve().parents[2]
TASKS = Path(d2k.__file__).parent / "tasks"
SCRIPT = ROOT / "benchmarks" / "bench_tasks.py"
NAMES = ["gemm_bias_gelu", "add_rmsnorm_fp8quant", "attn_prefill_gqa"]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


bench = load(SCRIPT)
TASK = {task.name: task for task in bench.ALL}


def inputs(name: str, axes: dict[str, int], seed: int) -> Any:
    return TASK[name].inputs(axes, torch.Generator().manual_seed(seed), torch.bfloat16)


def reference(name: str) -> Any:
    return load(TASKS / name / "reference.py")


# --- references ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_gemm_reference_equals_torch_in_float64(seed: int) -> None:
    A, W, bias = inputs("gemm_bias_gelu", {"M": 37, "N": 48, "K": 72}, seed)
    (Y,) = reference("gemm_bias_gelu").run(A, W, bias)
    other = torch.nn.functional.gelu(
        torch.nn.functional.linear(A.double(), W.double(), bias.double()), approximate="tanh"
    )
    torch.testing.assert_close(Y.double(), other, rtol=1e-6, atol=1e-7)


def test_gemm_reference_by_hand() -> None:
    """z = 1 * 2 + 3 * (-1) + 0.5 = -0.5, and gelu_tanh(-0.5) = -0.25 * (1 - tanh(0.7978846 * 0.50558939))."""
    A, W, bias = torch.tensor([[1.0, 3.0]]), torch.tensor([[2.0, -1.0]]), torch.tensor([0.5])
    (Y,) = reference("gemm_bias_gelu").run(A.bfloat16(), W.bfloat16(), bias.bfloat16())
    assert Y.item() == pytest.approx(-0.25 * (1.0 - math.tanh(0.7978846 * (0.5 + 0.044715 * 0.125))), rel=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("H", [128, 384])
def test_rmsnorm_reference_picks_the_nearest_code(seed: int, H: int) -> None:
    x, r, w = inputs("add_rmsnorm_fp8quant", {"T": 5, "H": H}, seed)
    h, q, s = reference("add_rmsnorm_fp8quant").run(x, r, w)
    assert torch.equal(h, x + r)
    n = torch.nn.functional.rms_norm(h.double(), (H,), w.double(), eps=1e-6).unflatten(-1, (-1, 128))
    torch.testing.assert_close(s.double(), n.abs().amax(-1) / 448.0, rtol=1e-6, atol=0.0)
    every_code = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    every_code = every_code[every_code.isfinite()]
    wanted = (n / s.double()[..., None]).flatten()
    nearest = (wanted[:, None] - every_code).abs().amin(-1)
    torch.testing.assert_close((q.double().flatten() - wanted).abs(), nearest, rtol=1e-4, atol=1e-4)


def test_rmsnorm_reference_of_a_zero_row_is_finite() -> None:
    zero = torch.zeros(1, 128, dtype=torch.bfloat16)
    h, q, s = reference("add_rmsnorm_fp8quant").run(zero, zero, torch.ones(128, dtype=torch.bfloat16))
    assert not h.any() and not q.float().any()
    assert s.item() == pytest.approx(1e-10 / 448.0)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_reference_equals_torch_in_float64(causal: int, seed: int) -> None:
    axes = {"B": 2, "S": 67, "Hq": 6, "Hk": 2, "D": 16, "causal": causal}
    Q, K, V, is_causal = inputs("attn_prefill_gqa", axes, seed)
    out, LSE = reference("attn_prefill_gqa").run(Q, K, V, is_causal)
    q, k, v = (t.double().transpose(1, 2) for t in (Q, K, V))
    other = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=True)
    torch.testing.assert_close(out.double(), other.transpose(1, 2), rtol=1e-5, atol=1e-6)
    scores = q @ k.repeat_interleave(3, dim=1).transpose(-1, -2) / 4.0
    if is_causal:
        scores = scores + torch.full((67, 67), -math.inf, dtype=torch.float64).triu(1)
    torch.testing.assert_close(LSE.double(), scores.exp().sum(-1).log(), rtol=1e-5, atol=1e-5)


def test_attention_reference_crosses_its_block_of_queries() -> None:
    """Row 1024 is the first of the second block: it sees keys 0..1024. Equal keys give the mean of the values."""
    S = 1025
    Q, K = torch.ones(1, S, 1, 16).bfloat16(), torch.zeros(1, S, 1, 16).bfloat16()
    V = torch.arange(S).view(1, S, 1, 1).remainder(2).expand(1, S, 1, 16).bfloat16()
    out, LSE = reference("attn_prefill_gqa").run(Q, K, V, True)
    assert out[0, 1024, 0, 0].item() == pytest.approx(512 / 1025)
    assert LSE[0, 0, 1024].item() == pytest.approx(math.log(1025))


# --- judge of the RMSNorm task ---------------------------------------------------------------------------------------


def judged(change: Any) -> bool:
    module = reference("add_rmsnorm_fp8quant")
    given = inputs("add_rmsnorm_fp8quant", {"T": 4, "H": 256}, 0)
    ref = module.run(*given)
    accepted, reason = module.accept(given, change(*(t.clone() for t in ref)), ref)
    assert accepted == (reason == "")
    return bool(accepted)


def one(t: Any, value: float) -> Any:
    t.view(-1)[3] = value
    return t


def test_judge_accepts_the_reference_and_an_equivalent_scale() -> None:
    assert judged(lambda h, q, s: (h, q, s))
    assert judged(lambda h, q, s: (h, q, s * (1 + 5e-4)))


@pytest.mark.parametrize(
    "change",
    [
        lambda h, q, s: (one(h, math.nan), q, s),
        lambda h, q, s: (one(h, 100.0), q, s),
        lambda h, q, s: (h, one(q, math.nan), s),
        lambda h, q, s: (h, torch.zeros_like(q), s),
        lambda h, q, s: (h, (-q.float()).to(q.dtype), s),
        lambda h, q, s: (h, q, one(s, math.nan)),
        lambda h, q, s: (h, q, 2 * s),
        lambda h, q, s: (h, (q.float() / 2).to(q.dtype), 2 * s),
        lambda h, q, s: (h, q.roll(1, dims=-1), s),
    ],
)
def test_judge_refuses(change: Any) -> None:
    assert not judged(change)


# --- the checking script ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_script_has_the_workloads_of_the_task(name: str) -> None:
    task = load_task(TASKS / name / "task.d2k").task
    assert task is not None
    table = TASK[name].workloads | TASK[name].edges
    assert {w.name for w in task.workloads if "held_out" not in w.tags} == set(TASK[name].workloads)
    for workload in task.workloads:
        axes = {axis: int(value) for axis, value in workload.axes.items()}
        assert list(table[workload.name].items()) == list(axes.items())
        assert TASK[name].flops(axes) == sum(workload.flops.values())
        assert TASK[name].bytes(axes) == workload.bytes


@pytest.mark.parametrize("name", NAMES)
def test_check_refuses_a_kernel_that_writes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "entry", lambda task, kernel, axes: lambda *args: None)
    task = TASK[name]
    assert not bench.check(task, "none.py", "small", task.small[0], torch.bfloat16, torch.device("cpu"), 1)


def test_check_refuses_a_kernel_that_changes_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(A: Any, W: Any, bias: Any, Y: Any) -> None:
        Y.copy_(reference("gemm_bias_gelu").run(A, W, bias)[0])
        bias.zero_()

    monkeypatch.setattr(bench, "entry", lambda task, kernel, axes: run)
    task = TASK["gemm_bias_gelu"]
    assert not bench.check(task, "none.py", "small", task.small[0], torch.bfloat16, torch.device("cpu"), 1)


def test_spans_run_from_first_start_to_last_end_between_spins() -> None:
    """Two calls: kernels 100..150 and 140..200 overlap (100 ns); then one of 40 ns. Flushes lie outside."""
    events = [
        ("flush", 0, 50),
        ("spin_kernel", 60, 30),
        ("a", 100, 50),
        ("b", 140, 60),
        ("spin_kernel", 210, 1),
        ("flush", 220, 50),
        ("spin_kernel", 280, 30),
        ("a", 320, 40),
        ("spin_kernel", 370, 1),
    ]
    assert bench.spans(events[::-1]) == [0.1, 0.04]


# --- baselines and kernels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", ["eager", "library"])
@pytest.mark.parametrize("name", ["gemm_bias_gelu", "add_rmsnorm_fp8quant"])  # attention's run on GPUs only
def test_baseline_is_right_on_the_cpu(name: str, baseline: str) -> None:
    task = TASK[name]
    for axes in task.small:
        assert bench.check(task, baseline, str(axes), axes, torch.bfloat16, torch.device("cpu"), 2)


@pytest.mark.parametrize("name", NAMES)
def test_triton_kernels_are_right_in_the_interpreter(name: str) -> None:
    pytest.importorskip("triton")
    command = [sys.executable, str(SCRIPT), "check", "--small", "--device", "cpu", "--seeds", "2", "--task", name]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kernels = len(list((TASKS / name).glob("naive.py")) + list((TASKS / name).glob("expert.py")))
    assert kernels == 2
    assert done.stdout.count("right") == kernels * len(TASK[name].small)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["90a", "100a"])
@pytest.mark.parametrize(
    "path", sorted(p for name in NAMES for p in (TASKS / name).glob("*.cu")), ids=lambda p: p.parent.name
)
def test_cuda_kernel_compiles_without_spills(path: Path, arch: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    target = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    command = [nvcc, "-O3", "-std=c++17", "-Xptxas", "-v", target, "-cubin", "-o", str(tmp_path / "k.cubin"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    spills = re.findall(r"(\d+) bytes spill stores", done.stderr)
    assert spills and set(spills) == {"0"}


@pytest.mark.slow
@pytest.mark.parametrize(("D", "warps", "causal"), [(128, 4, True), (128, 4, False), (256, 8, True)])
def test_attention_keeps_wgmma_asynchronous(D: int, warps: int, causal: bool, tmp_path: Path) -> None:
    """Where ptxas serialises, each of a product's instructions is followed by a wait; else each product has one."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    rows, keys = f"tensordesc<bf16[1, 128, {D}]>", f"tensordesc<bf16[1, 64, {D}]>"
    kernel = load(TASKS / "attn_prefill_gqa" / "expert.py").attention_kernel
    kinds = {"Q": rows, "K": keys, "V": keys, "O": rows, "LSE": "*fp32", "S": "i32", "Hq": "i32", "Hk": "i32"}
    constants = {"CAUSAL": causal, "TAIL": False, "D": D, "BLOCK_M": 128, "BLOCK_N": 64}
    signature = kinds | {"scale": "fp32"} | dict.fromkeys(constants, "constexpr")
    aligned = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in ("LSE", "S", "Hq")}
    source = ASTSource(kernel, {name: signature[name] for name in kernel.arg_names}, constants, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_stages": 2, "num_warps": warps})
    cubin = tmp_path / "k.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    disassembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    sass = subprocess.run([str(disassembler), "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    assert sass.count("WARPGROUP.DEPBAR") <= 4 < sass.count("HGMMA")


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_right_at_task_shapes(name: str) -> None:
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs a GPU of compute capability 9.0 or later")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "check", "--task", name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
