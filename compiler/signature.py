"""How a submission is called, in Python and in C: what a prompt tells and a harness does."""

from __future__ import annotations

from d2k.spec.task import Direction, Task, Tensor

_C_TYPES = {"f32": "float", "f64": "double", "i64": "int64_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t"}
_C_TYPES |= {"u8": "uint8_t", "bool": "bool"}
_PYTHON_SCALARS = {"bool": "bool", "f16": "float", "bf16": "float", "f32": "float", "f64": "float"}


def is_scalar(tensor: Tensor) -> bool:
    """Whether a declaration without brackets: a plain number or truth value in the call."""
    return not tensor.shape


def python_scalar(tensor: Tensor) -> str:
    """The Python type of a scalar: `bool`, `float` or `int`."""
    return _PYTHON_SCALARS.get(tensor.dtype, "int")


def python_signature(task: Task) -> str:
    """`def run(A: torch.Tensor, is_causal: bool, O: torch.Tensor) -> None`, broken over lines if it is long."""
    return _python(task.entry, [_python_parameter(one) for one in task.arguments], "None")


def prepare_signature(task: Task) -> str:
    """The optional `prepare`, which takes the constant inputs; "" if the task has none."""
    constants = [one for one in task.inputs if one.constant]
    return _python(task.prepare, [_python_parameter(one) for one in constants], "object") if constants else ""


def prepared_signature(task: Task) -> str:
    """`run` as it is called where `prepare` exists: what `prepare` returned comes first."""
    return _python(task.entry, ["state: object", *(_python_parameter(one) for one in task.arguments)], "None")


def c_signature(task: Task) -> str:
    """`extern "C" int run(const void* A, …, int64_t M, …, cudaStream_t stream)`, broken over lines if it is long."""
    parameters = [_c_parameter(one) for one in task.arguments]
    parameters += [f"int64_t {name}" for name in task.sizes]
    return _wrapped(f'extern "C" int {task.entry}(', [*parameters, "cudaStream_t stream"], ")")


def _python_parameter(tensor: Tensor) -> str:
    return f"{tensor.name}: {python_scalar(tensor) if is_scalar(tensor) else 'torch.Tensor'}"


def _c_parameter(tensor: Tensor) -> str:
    element = _C_TYPES.get(tensor.packed or tensor.dtype, "void")
    if is_scalar(tensor):
        return f"{'float' if element == 'void' else element} {tensor.name}"
    const = "const " if tensor.direction is Direction.INPUT else ""
    return f"{const}{element}* {tensor.name}"


def _python(name: str, parameters: list[str], result: str) -> str:
    return _wrapped(f"def {name}(", parameters, f") -> {result}")


def _wrapped(head: str, parameters: list[str], tail: str) -> str:
    line = head + ", ".join(parameters) + tail
    if len(line) <= 100:
        return line
    return head + "".join(f"\n    {one}," for one in parameters).rstrip(",") + "\n" + tail
