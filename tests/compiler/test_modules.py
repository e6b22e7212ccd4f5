"""`use`: where modules are looked for, what they bring, and what goes wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from task_example import short

from d2k.compiler.compile import check_parsed, compile_text, load_task
from d2k.compiler.modules import library_folder
from d2k.compiler.parse import parse_bytes
from d2k.spec.evaluator import evaluate
from d2k.spec.expression import Call, Number, Sequence


def codes(text: str, folder: Path) -> list[str]:
    return [one.code for one in check_parsed(parse_bytes(text.encode(), "file.d2k"), folder)]


def test_a_module_beside_the_file_comes_before_the_library(tmp_path: Path) -> None:
    (tmp_path / "guidance").mkdir()
    (tmp_path / "guidance" / "pipelined_mma.d2k").write_text("d2k 1\nfn own(n) = n + 1\n")
    assert codes("d2k 1\nuse guidance.pipelined_mma\nfn more(n) = own(n)\n", tmp_path) == []


def test_functions_of_modules_are_known_under_their_own_names(tmp_path: Path) -> None:
    (tmp_path / "sizes.d2k").write_text("d2k 1\nfn doubled(n) = 2 * n\n")
    task = short("let X = doubled(M) + cdiv(M, 3)", "where X > 0").replace("d2k 1", "d2k 1\nuse sizes")
    found = compile_text(task, "task.d2k", tmp_path).diagnostics
    assert [one.code for one in found] == ["D2K0911", "D2K0911"]  # the Python files only


def test_two_modules_may_not_bring_the_same_function(tmp_path: Path) -> None:
    (tmp_path / "one.d2k").write_text("d2k 1\nfn same(n) = n\n")
    (tmp_path / "two.d2k").write_text("d2k 1\nfn same(n) = n + 1\n")
    text = "d2k 1\nuse one\nuse two\nfn call(n) = same(n)\n"
    assert codes(text, tmp_path) == ["D2K0301"]


def test_a_module_is_read_once_however_often_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "base.d2k").write_text("d2k 1\nfn base(n) = n\n")
    (tmp_path / "left.d2k").write_text("d2k 1\nuse base\nfn left(n) = base(n)\n")
    (tmp_path / "right.d2k").write_text("d2k 1\nuse base\nfn right(n) = base(n)\n")
    assert codes("d2k 1\nuse left\nuse right\nfn both(n) = left(n) + right(n)\n", tmp_path) == []


def test_mistakes_in_a_module_are_told_there_with_the_use(tmp_path: Path) -> None:
    (tmp_path / "broken.d2k").write_text("d2k 1\nfn wrong(n) = m\n")
    parsed = parse_bytes(b"d2k 1\nuse broken\nfn call(n) = wrong(n)\n", "file.d2k")
    (one,) = check_parsed(parsed, tmp_path)
    assert (one.code, Path(one.span.path).name, one.span.line) == ("D2K0303", "broken.d2k", 2)
    assert [(note.text, note.span and note.span.line) for note in one.notes] == [("module `broken` is used here", 2)]


def test_a_file_that_is_no_text_is_a_diagnostic(tmp_path: Path) -> None:
    (tmp_path / "binary.d2k").write_bytes(b"d2k 1\n\xff\xfe")
    assert codes("d2k 1\nuse binary\nfn call(n) = n\n", tmp_path)[0].startswith("D2K01")


def test_an_unreadable_module_is_a_diagnostic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locked.d2k").write_text("d2k 1\n")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert codes("d2k 1\nuse locked\nfn call(n) = n\n", tmp_path) == ["D2K0918"]


def test_chains_of_modules_are_bounded(tmp_path: Path) -> None:
    for level in range(20):
        (tmp_path / f"m{level}.d2k").write_text(f"d2k 1\nuse m{level + 1}\nfn f{level}(n) = n\n")
    assert "D2K0917" in codes("d2k 1\nuse m0\nfn call(n) = f0(n)\n", tmp_path)


@pytest.mark.parametrize("path", sorted(library_folder().rglob("*.d2k")), ids=lambda path: path.stem)
def test_the_library_has_no_mistakes(path: Path) -> None:
    assert [one.message for one in check_parsed(parse_bytes(path.read_bytes(), str(path)), path.parent)] == []


# ---- the standard functions, held against plain counting


def call(name: str, *arguments: object) -> object:
    from d2k.compiler.modules import ModuleLoader
    from d2k.compiler.parse import parse
    from d2k.compiler.problems import Problems

    loader = ModuleLoader(Problems())
    loader.module(parse("d2k 1\n", "x.d2k").tree, None, "x.d2k")
    nodes = tuple(
        Sequence(tuple(Number(x) for x in one)) if isinstance(one, list) else Number(one)  # type: ignore[arg-type]
        for one in arguments
    )
    return evaluate(Call(name, nodes), {}, loader.functions)


@pytest.mark.parametrize("a", [0, 1, 7, 8, 9])
@pytest.mark.parametrize("b", [1, 4, 8])
def test_rounding_up(a: int, b: int) -> None:
    assert call("cdiv", a, b) == len(range(0, a, b))
    assert call("rup", a, b) == min(x for x in range(a + b) if x >= a and x % b == 0)


@pytest.mark.parametrize("n", [1, 5, 64, 130])
@pytest.mark.parametrize("w", [0, 1, 7, 64, 200])
def test_pairs_under_a_window(n: int, w: int) -> None:
    pairs = sum(1 for i in range(n) for j in range(i + 1) if w == 0 or i - j < w)
    assert call("wpairs", n, w) == pairs
    assert call("sumwpairs", [n, 3], w) == pairs + sum(1 for i in range(3) for j in range(i + 1) if w == 0 or i - j < w)


@pytest.mark.parametrize(("s", "bs", "count"), [(64, 8, 3), (256, 16, 4), (128, 16, 20)])
def test_pairs_of_selected_blocks(s: int, bs: int, count: int) -> None:
    seen = sum((min(count, t // bs + 1) - 1) * bs + t % bs + 1 for t in range(s))
    assert call("selpairs", s, bs, count) == seen


def test_lists() -> None:
    assert call("rep", 7, 3) == (7, 7, 7)
    assert call("rep", 7, 0) == ()
    assert call("ramp", 5, 512, 8192) == (512, 2432, 4352, 6272, 8192)
    assert call("ramp", 1, 512, 8192) == (512,)
    assert call("scaled", [100, 10, 1], 0.25) == (25, 2, 1)
    assert call("tri", 8192) == sum(range(8193))
    assert call("sumcdiv", [1, 63, 64, 65], 64) == 1 + 1 + 1 + 2


def test_files_may_use_the_standard_module_by_name(tmp_path: Path) -> None:
    (tmp_path / "task.d2k").write_text(short("let X = cdiv(M, 3)", "where X > 0").replace("d2k 1", "d2k 1\nuse std"))
    assert {one.code for one in load_task(tmp_path / "task.d2k").diagnostics} == {"D2K0911"}
