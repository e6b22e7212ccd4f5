"""A kernel variant as detectors see it: its operations with the questions that every detector asks of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from d2k.analyzers.core.fold import FOLDED, fold, foldable
from d2k.spec.facts import (
    NONE,
    Body,
    Constant,
    Kernel,
    Kind,
    Launch,
    Loop,
    Op,
    Place,
    Program,
    Reach,
    Variant,
)

POINTER_ARITHMETIC = (
    Kind.ELEMENTWISE,
    Kind.PHI,
    Kind.SHAPE,
    Kind.CAST,
    Kind.DESCRIPTOR,
    Kind.ITEM,
    Kind.CONTROL,
)


def is_root(op: Op) -> bool:
    """An argument or an array: what an address begins with."""
    return op.kind is Kind.ALLOC or (op.kind is Kind.PARAM and not op.attrs.get("constexpr"))


class BodyGraph:
    """The structure of one body, whatever its constants: who uses a value and what a value is computed from."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self._slices: dict[int, frozenset[int]] = {}
        self._roots: dict[int, tuple[int, ...]] = {}
        self._reads: dict[int, frozenset[str]] = {}
        self._inside: dict[int, tuple[int, ...]] = {}
        self.fixed: dict[int, Constant] = {}
        """What values fold to that no parameter has a part in."""

    @cached_property
    def by_kind(self) -> dict[Kind, tuple[int, ...]]:
        found: dict[Kind, list[int]] = {}
        for value, op in enumerate(self.body.ops):
            found.setdefault(op.kind, []).append(value)
        return {kind: tuple(values) for kind, values in found.items()}

    @cached_property
    def foldable(self) -> tuple[bool, ...]:
        """For each value whether it can be a constant: chains of sums are not followed from each of their terms."""
        return foldable(self.body)

    @cached_property
    def nests(self) -> tuple[tuple[int, ...], ...]:
        """For each loop itself and the loops around it, innermost first."""
        found: list[tuple[int, ...]] = []
        for loop in range(len(self.body.loops)):
            chain: list[int] = []
            while loop != NONE:
                chain.append(loop)
                loop = self.body.loops[loop].parent
            found.append(tuple(chain))
        return tuple(found)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        users: list[list[int]] = [[] for _ in self.body.ops]
        for value, op in enumerate(self.body.ops):
            for arg in dict.fromkeys(op.args):
                if arg != NONE:
                    users[arg].append(value)
        return tuple(tuple(one) for one in users)

    def walk(self, value: int, through: Callable[[Op], bool]) -> Iterator[int]:
        seen = {value}
        stack = [value]
        while stack:
            at = stack.pop()
            yield at
            op = self.body.ops[at]
            if at == value or through(op):
                for arg in reversed(op.args):
                    if arg != NONE and arg not in seen:
                        seen.add(arg)
                        stack.append(arg)

    def inside(self, loop: int) -> tuple[int, ...]:
        """Values defined in `loop`, those in its inner loops included, in program order."""
        if loop not in self._inside:
            within = {inner for inner, nest in enumerate(self.nests) if loop in nest}
            self._inside[loop] = tuple(value for value, op in enumerate(self.body.ops) if op.loop in within)
        return self._inside[loop]

    def slice(self, value: int) -> frozenset[int]:
        if value not in self._slices:
            self._slices[value] = frozenset(self.walk(value, lambda _: True))
        return self._slices[value]

    def roots(self, address: int) -> tuple[int, ...]:
        if address not in self._roots:
            walk = self.walk(address, lambda op: op.kind in POINTER_ARITHMETIC)
            self._roots[address] = tuple(sorted(value for value in walk if is_root(self.body.ops[value])))
        return self._roots[address]

    def reads(self, value: int) -> frozenset[str]:
        """Names of the parameters that folding `value` may look at."""
        if value not in self._reads:
            ops = (self.body.ops[at] for at in self.walk(value, lambda op: op.kind in FOLDED))
            self._reads[value] = frozenset(op.name for op in ops if op.kind is Kind.PARAM)
        return self._reads[value]


class BodyView:
    """Queries over one body under one set of constants. `reads` collects the names of constants that were looked at."""

    def __init__(self, graph: BodyGraph, constants: Mapping[str, Constant]) -> None:
        self.graph = graph
        self.body = graph.body
        self.constants = constants
        self.reads: set[str] = set()
        self._folded: dict[int, Constant] = {}

    def reading(self, name: str) -> object:
        """The value that a name in `reads` stands for."""
        return self.constants.get(name)

    def op(self, value: int) -> Op:
        return self.body.ops[value]

    def loop(self, index: int) -> Loop:
        return self.body.loops[index]

    def values(self, *kinds: Kind, name: str | Sequence[str] | None = None) -> tuple[int, ...]:
        """Values of these kinds in program order, of one name or one of several names if given."""
        names = (name,) if isinstance(name, str) else name
        by_kind = self.graph.by_kind
        if len(kinds) == 1 and names is None:
            return by_kind.get(kinds[0], ())
        found = [value for kind in kinds for value in by_kind.get(kind, ())]
        if len(kinds) > 1:
            found.sort()
        ops = self.body.ops
        return tuple(value for value in found if names is None or ops[value].name in names)

    def users(self, value: int) -> tuple[int, ...]:
        """Operations that take `value` as an operand."""
        return self.graph.users[value]

    def fold(self, value: int) -> Constant:
        """The compile-time constant that `value` is in this variant, or None."""
        if value == NONE:
            return None
        fixed = self.graph.fixed
        if value in fixed:
            return fixed[value]
        if not self.graph.foldable[value]:
            return None
        reads = self.graph.reads(value)
        known = self._folded if reads else fixed
        self.reads |= reads
        if value not in known:
            known[value] = fold(self.body, value, self.constants)
        return known[value]

    def fold_int(self, value: int) -> int | None:
        constant = self.fold(value)
        return constant if isinstance(constant, int) and not isinstance(constant, bool) else None

    def dims(self, value: int) -> tuple[int | None, ...] | None:
        """The tile shape of `value` with constants filled in; None if its rank is not known."""
        shape = self.op(value).shape
        return None if shape is None else tuple(self.fold_int(dim) for dim in shape)

    def slice(self, value: int) -> frozenset[int]:
        """All values that `value` is computed from, itself included (through loops, memory not followed)."""
        return self.graph.slice(value)

    def walk(self, value: int, through: Callable[[Op], bool]) -> Iterator[int]:
        """`value` and what it is computed from; operands of an operation are visited only if `through` accepts it."""
        return self.graph.walk(value, through)

    def flows_to(self, value: int, through: Callable[[Op], bool] = lambda _: True) -> Iterator[int]:
        """`value` and all operations that use it, directly or through operations that `through` accepts."""
        seen = {value}
        stack = [value]
        while stack:
            at = stack.pop()
            yield at
            if at == value or through(self.op(at)):
                for user in self.users(at):
                    if user not in seen:
                        seen.add(user)
                        stack.append(user)

    def depends(self, value: int, on: int) -> bool:
        return on in self.slice(value)

    def strip(self, value: int) -> int:
        """The value behind casts, reshapes, broadcasts, conditions on entry and copies."""
        while (
            self.op(value).kind in (Kind.CAST, Kind.SHAPE)
            and self.op(value).args
            and self.op(value).name not in ("index", "insert")
        ):
            value = self.op(value).args[0]
        return value

    def loops_of(self, value: int) -> tuple[int, ...]:
        """Indices of the loops around `value`, innermost first."""
        return self.ancestors(self.op(value).loop)

    def ancestors(self, loop: int) -> tuple[int, ...]:
        return self.graph.nests[loop] if loop != NONE else ()

    def inside(self, loop: int) -> tuple[int, ...]:
        """Values defined in `loop`, those in its inner loops included, in program order."""
        return self.graph.inside(loop)

    def roots(self, address: int) -> tuple[int, ...]:
        """PARAM and ALLOC values that an address, array or descriptor is derived from; indices through
        memory are not followed."""
        return self.graph.roots(address)

    def is_root(self, value: int) -> bool:
        return is_root(self.op(value))


class KernelView(BodyView):
    """One variant of one kernel inside its program."""

    def __init__(self, program: ProgramView, kernel: Kernel, variant: Variant, graph: BodyGraph) -> None:
        super().__init__(graph, variant.constants)
        self.program = program
        self.kernel = kernel
        self.variant = variant

    def reading(self, name: str) -> object:
        if name == LAUNCH:
            return self.variant.launch
        if name == SITES:
            return self.variant.sites
        return super().reading(name)

    @property
    def launch(self) -> Launch:
        """The launch options of this variant."""
        self.reads.add(LAUNCH)
        return self.variant.launch

    def launch_sites(self) -> tuple[tuple[BodyView, int], ...]:
        """The host bodies and the LAUNCH operations in them that launch this variant."""
        self.reads.add(SITES)
        hosts = self.program.hosts
        return tuple((hosts[name], value) for name, value in self.variant.sites if name in hosts)

    def launch_place(self) -> Place:
        """Where the variant is launched, or where the kernel stands if no launch is in sight."""
        sites = self.launch_sites()
        return sites[0][0].op(sites[0][1]).place if sites else self.kernel.place

    def pointer(self, address: int) -> str | None:
        """Name of the one pointer parameter that `address` is derived from; None if there is none or several."""
        pointers = {param.name for param in self.kernel.params if param.pointer}
        roots = [self.op(root) for root in self.roots(address)]
        names = {op.name for op in roots if op.kind is Kind.PARAM}
        candidates = names & pointers or names
        return candidates.pop() if len(candidates) == 1 else None

    def place(self, value: int) -> Place:
        return self.op(value).place


LAUNCH = "@launch"
SITES = "@sites"


class ProgramView:
    """A whole program for one target architecture such as `sm_100a`."""

    def __init__(self, program: Program, target: str) -> None:
        self.program = program
        self.target = target
        self._graphs: dict[int, BodyGraph] = {}

    def graph(self, body: Body) -> BodyGraph:
        """The graph of `body`; variants that share a body share its graph."""
        found = self._graphs.get(id(body))
        if found is None:
            found = self._graphs[id(body)] = BodyGraph(body)
        return found

    @cached_property
    def hosts(self) -> dict[str, BodyView]:
        """Every host function by name, and the module's own code under ""."""
        found = {one.name: BodyView(self.graph(one.body), {}) for one in self.program.functions}
        return found | {"": BodyView(self.graph(self.program.module), {})}

    @cached_property
    def live_hosts(self) -> dict[str, BodyView]:
        """The host functions that run."""
        return {one.name: self.hosts[one.name] for one in self.program.functions if one.reachable}

    @cached_property
    def kernels(self) -> tuple[KernelView, ...]:
        """Every variant of every kernel that is not dead, in source order."""
        return tuple(
            KernelView(self, kernel, variant, self.graph(variant.body))
            for kernel in self.program.kernels
            if kernel.reach is not Reach.DEAD
            for variant in kernel.variants
        )
