"""Binds the arguments of kernels to the tensors and axes of a task, through launches and host code.

A finding says `operand = w_ptr`; guidance says `operand = weight`. The task's entry takes its tensors in declaration
order, so the argument is followed from the kernel's parameter through the launch and the calls between host functions
to a parameter of the entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from d2k.spec.facts import NONE, Function, Kind, Op, Program
from d2k.spec.task import Task

Words = frozenset[str]
"""Everything that guidance may call one tensor or axis: its name and its role."""

Origins = tuple[Words | None, ...]
"""One member for each place that an argument may come from; None where that is not known. Never empty."""

UNBOUND: Origins = (None,)

SAME_TENSOR = frozenset(
    {
        *("H", "T", "mH", "mT", "as_strided", "clone", "contiguous", "cuda", "data", "detach", "expand", "flatten"),
        *("narrow", "permute", "ravel", "reshape", "squeeze", "t", "to", "transpose", "unflatten", "unsqueeze", "view"),
        *("const_data_ptr", "data_ptr", "mutable_data_ptr", "packed_accessor32", "packed_accessor64", "view_as"),
        *("TensorDescriptor", "from_tensor", "make_tensor_descriptor", "wrap_torch_tensor"),
    }
)
"""Methods, attributes and wrappers whose result stands for the tensor that they are applied to."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A value of a host function."""

    program: int
    function: str
    value: int


class Roles:
    """What the names in findings stand for. Files are those of one submission; the entry is the task's."""

    def __init__(self, task: Task, programs: tuple[Program, ...]) -> None:
        self._task = task
        self._programs = programs
        self._functions: dict[str, tuple[int, Function]] = {}
        for index, program in enumerate(programs):
            for function in program.functions:
                if function.reachable:
                    self._functions.setdefault(_short(function.name), (index, function))
        named = {_short(function.name) for program in programs for function in program.functions}
        self._prepared = 1 if task.prepare in named else 0
        self._calls = dict(self._find_calls())
        self._tensors = {tensor.name: frozenset({tensor.name, tensor.role} - {""}) for tensor in task.tensors}
        roles = [(one.name, one.role) for one in task.axes] + [(one.name, one.role) for one in task.lets]
        self._axes = {name: frozenset({name, name.lower(), role} - {""}) for name, role in roles}
        self._task_words = frozenset().union(*self._tensors.values(), *self._axes.values())
        self._known: dict[tuple[str, str, str], Origins | None] = {}

    def words(self, path: str, kernel: str, name: str, members: Collection[str] = ()) -> Origins:
        """What `name`, found in a kernel of the file `path`, may stand for.

        A name that is no parameter stands for itself if it is one of `members`, the words of the attribute that has it,
        or a word of the task; any other is not known.
        """
        key = (path, kernel, name)
        if key not in self._known:
            self._known[key] = self._parameter_words(path, kernel, name)
        bound = self._known[key]
        if bound is not None:
            return bound
        return (frozenset({name}),) if name in members or name in self._task_words else UNBOUND

    def _parameter_words(self, path: str, kernel: str, name: str) -> Origins | None:
        """Origins of a parameter; None if no parameter has this name."""
        if kernel == "":
            return self._entry_argument(name)
        for program in self._programs:
            if program.path == path:
                for one in program.kernels:
                    if one.name == kernel and any(param.name == name for param in one.params):
                        return self._parameter(kernel, name)
        return None

    def along(self, origins: Origins) -> Origins:
        """The same for an attribute that names an axis: a tensor stands for the axes of its shape as well."""
        shapes = {self._tensors[tensor.name]: tensor.shape for tensor in self._task.tensors}
        return tuple(
            words
            if words is None
            else words.union(*(self._axes.get(axis, frozenset()) for axis in shapes.get(words, ())))
            for words in origins
        )

    def _entry_argument(self, name: str) -> Origins | None:
        """A name in a finding about the whole program: a parameter of the entry, or else a word."""
        found = self._functions.get(self._task.entry)
        if found is None or all(param.name != name for param in found[1].params):
            return None
        return self._entry_origin(found[1], name)

    def _parameter(self, kernel: str, name: str) -> Origins:
        """Origins of a kernel's parameter over all places that launch it."""
        found: list[Words | None] = []
        for place, op in self._launches(kernel):
            names = op.attrs.get("params")
            if not isinstance(names, tuple) or name not in names:
                continue
            grid = op.attrs.get("grid")
            at = (grid if isinstance(grid, int) else 0) + names.index(name)
            if at < len(op.args):
                found.extend(self._origins(_Place(place.program, place.function, op.args[at]), frozenset()))
        return tuple(dict.fromkeys(found)) or UNBOUND

    def _launches(self, kernel: str) -> Iterator[tuple[_Place, Op]]:
        for name, (index, function) in self._functions.items():
            for value, op in enumerate(function.body.ops):
                if op.kind is Kind.LAUNCH and _short(op.name) == kernel:
                    yield _Place(index, name, value), op

    def _find_calls(self) -> Iterator[tuple[str, list[tuple[_Place, Op]]]]:
        """For each host function the calls to it from reachable host code."""
        found: dict[str, list[tuple[_Place, Op]]] = {}
        for name, (index, function) in self._functions.items():
            for value, op in enumerate(function.body.ops):
                if op.kind is Kind.HOST_CALL and _short(op.name) in self._functions:
                    found.setdefault(_short(op.name), []).append((_Place(index, name, value), op))
        yield from found.items()

    def _origins(self, place: _Place, seen: frozenset[_Place]) -> Origins:
        """Where a host value comes from: a tensor of the task, an extent of one, or nothing that is known."""
        if place.value == NONE or place in seen:
            return UNBOUND
        seen |= {place}
        _, function = self._functions[place.function]
        op = function.body.ops[place.value]

        def follow(value: int) -> Origins:
            return self._origins(_Place(place.program, place.function, value), seen)

        match op.kind:
            case Kind.PARAM:
                return self._host_parameter(place.function, function, op.name, seen)
            case Kind.CAST | Kind.SHAPE | Kind.DESCRIPTOR | Kind.CONTROL if op.args:
                return follow(op.args[0])
            case Kind.ATTRIBUTE | Kind.HOST_CALL if _short(op.name) in SAME_TENSOR and op.args:
                return follow(op.args[0])
            case Kind.HOST_CALL if _short(op.name) in ("size",) and len(op.args) == 2:
                return self._extent(follow(op.args[0]), _constant(function, op.args[1]))
            case Kind.ITEM if op.args and _is_shape(function, op.args[0]):
                index = op.attrs.get("index")
                return self._extent(
                    follow(function.body.ops[op.args[0]].args[0]), index if isinstance(index, int) else None
                )
            case Kind.PHI:
                branches = op.args[1:] if op.name == "if" else op.args
                return tuple(dict.fromkeys(one for value in branches for one in follow(value))) or UNBOUND
            case Kind.ELEMENTWISE if op.name in ("add", "sub"):
                return self._pointer_offset([follow(value) for value in op.args])
            case _:
                return UNBOUND

    def _host_parameter(self, name: str, function: Function, param: str, seen: frozenset[_Place]) -> Origins:
        if name == self._task.entry:
            return self._entry_origin(function, param)
        names = [one.name for one in function.params]
        if param not in names:
            return UNBOUND
        at = names.index(param)
        found: list[Words | None] = []
        for place, op in self._calls.get(name, ()):
            keywords = op.attrs.get("keywords")
            value = _argument(op, at, param, keywords if isinstance(keywords, tuple) else ())
            found.extend(self._origins(_Place(place.program, place.function, value), seen))
        return tuple(dict.fromkeys(found)) or UNBOUND

    def _entry_origin(self, function: Function, param: str) -> Origins:
        """A parameter of the entry: what `prepare` returned if there is one, then tensors, then, in C, sizes."""
        names = [one.name for one in function.params]
        if param not in names:
            return UNBOUND
        at = names.index(param) - self._prepared
        arguments, sizes = self._task.arguments, self._task.sizes
        if 0 <= at < len(arguments):
            return (self._tensors[arguments[at].name],)
        if 0 <= at - len(arguments) < len(sizes):
            return (self._axes[sizes[at - len(arguments)]],)
        return UNBOUND

    def _pointer_offset(self, operands: list[Origins]) -> Origins:
        """`pointer + offset`: the one operand that is a tensor."""
        tensors = set(self._tensors.values())
        found = [one for one in operands if all(words in tensors for words in one)]
        return found[0] if len(found) == 1 else UNBOUND

    def _extent(self, origins: Origins, index: int | None) -> Origins:
        """The axis that dimension `index` of a tensor counts; its words are those of the axis."""
        found: list[Words | None] = []
        for words in origins:
            tensor = next((one for one in self._task.tensors if self._tensors[one.name] == words), None)
            known = tensor is not None and index is not None and -len(tensor.shape) <= index < len(tensor.shape)
            found.append(self._axes.get(tensor.shape[index]) if known and tensor and index is not None else None)
        return tuple(dict.fromkeys(found)) or UNBOUND


def _short(name: str) -> str:
    """`module.kernel` and `self.kernel` as `kernel`."""
    return name.rsplit(".", 1)[-1].rsplit("::", 1)[-1]


def _is_shape(function: Function, value: int) -> bool:
    op = function.body.ops[value]
    return op.kind is Kind.ATTRIBUTE and op.name in ("shape", "sizes") and bool(op.args)


def _constant(function: Function, value: int) -> int | None:
    op = function.body.ops[value]
    found = op.attrs.get("value")
    return found if op.kind is Kind.CONST and isinstance(found, int) and not isinstance(found, bool) else None


def _argument(op: Op, at: int, param: str, keywords: tuple[object, ...]) -> int:
    """The value passed for the parameter `param` at position `at`; the last arguments are the keyword ones."""
    positional = len(op.args) - len(keywords)
    if param in keywords:
        return op.args[positional + keywords.index(param)]
    return op.args[at] if at < positional else NONE
