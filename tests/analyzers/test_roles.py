"""Arguments of kernels bound to the tensors of a task, through launches and host code."""

from __future__ import annotations

import msgspec
from submissions import PATH, host, op, program, task, tensor

from d2k.analyzers.roles import UNBOUND, Roles
from d2k.spec.facts import Kind, Op
from d2k.spec.task import Axis, Direction

GEMM = task(
    tensors=(
        tensor("A", "activation"),
        tensor("W", "weight", shape=("N", "K")),
        tensor("Y", direction=Direction.OUTPUT, shape=("M", "N")),
    ),
    axes=(Axis("M", "int"), Axis("N", "int", "vocab"), Axis("K", "int")),
)
ACTIVATION, WEIGHT, Y = frozenset({"A", "activation"}), frozenset({"W", "weight"}), frozenset({"Y"})


def launch(*args: int, params: tuple[str, ...], grid: int = 0) -> Op:
    return op(Kind.LAUNCH, "k", *args, params=params, grid=grid)


def test_arguments_follow_the_order_of_declaration_not_names() -> None:
    # run(x, a, w): the second parameter is W whatever it is called
    code = program(
        host("run", ("x", "a", "out"), launch(0, 1, 2, params=("x_ptr", "a_ptr", "c_ptr"))),
        params=("x_ptr", "a_ptr", "c_ptr"),
    )
    roles = Roles(GEMM, (code,))
    assert [roles.words(PATH, "k", name) for name in ("x_ptr", "a_ptr", "c_ptr")] == [(ACTIVATION,), (WEIGHT,), (Y,)]


def test_grid_values_come_before_arguments() -> None:
    code = program(
        host("run", ("a", "w", "y"), op(Kind.CONST, value=4), launch(3, 0, 1, params=("p", "q"), grid=1)),
        params=("p", "q"),
    )
    assert Roles(GEMM, (code,)).words(PATH, "k", "q") == (WEIGHT,)


def test_views_and_descriptors_stand_for_their_tensor() -> None:
    code = program(
        host(
            "run",
            ("a", "w", "y"),
            op(Kind.HOST_CALL, "w.view", 1),  # 3
            op(Kind.HOST_CALL, "torch.Tensor.contiguous", 3),  # 4
            op(Kind.DESCRIPTOR, "", 4, host=True),  # 5
            op(Kind.ATTRIBUTE, "data_ptr", 0),  # 6
            launch(5, 6, params=("w_desc", "a_ptr")),
        ),
        params=("w_desc", "a_ptr"),
    )
    roles = Roles(GEMM, (code,))
    assert roles.words(PATH, "k", "w_desc") == (WEIGHT,)
    assert roles.words(PATH, "k", "a_ptr") == (ACTIVATION,)


def test_through_a_host_helper_with_keywords() -> None:
    # helper(dst, lhs, rhs) is called as helper(y, rhs=w, lhs=a)
    code = program(
        host("run", ("a", "w", "y"), op(Kind.HOST_CALL, "helper", 2, 1, 0, keywords=("rhs", "lhs"))),
        host("helper", ("dst", "lhs", "rhs"), launch(1, 2, 0, params=("l", "r", "d"))),
        params=("l", "r", "d"),
    )
    roles = Roles(GEMM, (code,))
    assert [roles.words(PATH, "k", name) for name in "lrd"] == [(ACTIVATION,), (WEIGHT,), (Y,)]


def test_through_another_file() -> None:
    main = program(host("run", ("a", "w", "y"), op(Kind.HOST_CALL, "ext.gemm", 0, 1, 2)), path="main.py")
    device = program(host("gemm", ("a", "b", "c"), launch(1, params=("b",))), params=("b",), path="gemm.cu")
    assert Roles(GEMM, (main, device)).words("gemm.cu", "k", "b") == (WEIGHT,)


def test_two_launches_give_two_origins() -> None:
    code = program(host("run", ("a", "w", "y"), launch(0, params=("x",)), launch(1, params=("x",))), params=("x",))
    assert set(Roles(GEMM, (code,)).words(PATH, "k", "x")) == {ACTIVATION, WEIGHT}


def test_an_allocation_is_no_tensor_of_the_task() -> None:
    code = program(
        host("run", ("a", "w", "y"), op(Kind.HOST_ALLOC, "torch.empty"), launch(3, params=("tmp",))), params=("tmp",)
    )
    assert Roles(GEMM, (code,)).words(PATH, "k", "tmp") == UNBOUND


def test_extent_of_a_tensor_is_an_axis() -> None:
    # n = w.shape[0]; w is W[N, K], N stands for vocab
    code = program(
        host(
            "run",
            ("a", "w", "y"),
            op(Kind.ATTRIBUTE, "shape", 1),
            op(Kind.ITEM, "", 3, index=0),
            op(Kind.ITEM, "", 3, index=-1),
            launch(4, 5, params=("n", "kk")),
        ),
        params=("n", "kk"),
    )
    roles = Roles(GEMM, (code,))
    assert roles.words(PATH, "k", "n") == (frozenset({"N", "n", "vocab"}),)
    assert roles.words(PATH, "k", "kk") == (frozenset({"K", "k"}),)


def test_a_word_that_is_no_parameter_stands_for_itself() -> None:
    code = program(host("run", ("a", "w", "y"), launch(0, params=("x",))), params=("x",))
    roles = Roles(GEMM, (code,))
    assert roles.words(PATH, "k", "row", ("row", "kv")) == (frozenset({"row"}),)
    assert roles.words(PATH, "k", "weight") == (frozenset({"weight"}),)
    # neither a parameter nor a word that guidance could use
    assert roles.words(PATH, "k", "tile_of_something", ("row", "kv")) == UNBOUND


def test_recursion_of_host_code_ends() -> None:
    code = program(
        host("run", ("a", "w", "y"), op(Kind.HOST_CALL, "loop", 0)),
        host("loop", ("t",), op(Kind.HOST_CALL, "loop", 0), launch(0, params=("x",))),
        params=("x",),
    )
    assert set(Roles(GEMM, (code,)).words(PATH, "k", "x")) == {ACTIVATION, None}


def test_calls_from_code_that_does_not_run_do_not_bind() -> None:
    code = program(
        host("run", ("a", "w", "y"), op(Kind.HOST_CALL, "helper", 0)),
        host("old", ("t",), op(Kind.HOST_CALL, "helper", 0), reachable=False),
        host("helper", ("t",), launch(0, params=("x",))),
        params=("x",),
    )
    assert Roles(GEMM, (code,)).words(PATH, "k", "x") == (ACTIVATION,)


def test_sizes_follow_the_tensors_in_c() -> None:
    # run(A, W, Y, M, N, K, stream)
    code = program(
        host("run", ("a", "w", "y", "m", "n", "k", "stream"), launch(4, 6, params=("n", "s"))), params=("n", "s")
    )
    roles = Roles(GEMM, (code,))
    assert roles.words(PATH, "k", "n") == (frozenset({"N", "n", "vocab"}),)
    assert roles.words(PATH, "k", "s") == UNBOUND


def test_what_prepare_returned_comes_first() -> None:
    code = program(
        host("run", ("state", "a", "w", "y"), launch(0, 2, params=("packed", "w"))),
        host("prepare", ("w",), reachable=False),
        params=("packed", "w"),
    )
    roles = Roles(msgspec.structs.replace(GEMM, prepare="prepare"), (code,))
    assert roles.words(PATH, "k", "packed") == UNBOUND
    assert roles.words(PATH, "k", "w") == (WEIGHT,)


def test_without_an_entry_nothing_is_bound() -> None:
    code = program(host("main", ("a",), launch(0, params=("x",))), params=("x",))
    assert Roles(GEMM, (code,)).words(PATH, "k", "x") == UNBOUND


def test_a_tensor_that_names_an_axis_stands_for_its_axes() -> None:
    roles = Roles(GEMM, ())
    # W is [N, K], and N is `as vocab`
    assert roles.along((WEIGHT, None)) == (WEIGHT | {"N", "n", "vocab", "K", "k"}, None)
