"""Property declarations and the compiled vocabulary."""

from __future__ import annotations

from importlib.resources import files

from d2k.compiler import syntax
from d2k.compiler.parse import parse
from d2k.compiler.problems import Problems
from d2k.compiler.vocabulary import compile_source, compile_vocabulary, content_hash, to_json
from d2k.spec.check import Filter, Op, Term
from d2k.spec.vocabulary import Attribute, Level, Tier, Vocabulary


def compiled(text: str) -> Vocabulary:
    problems = Problems()
    found = compile_vocabulary(parse(text, "v.d2k").tree.every(syntax.Property), problems)
    assert problems.found == []
    return found


TEXT = '''
property paired_mma L3 {
  title "MMA over two blocks"
  definition """
    One instruction spans
    a pair of blocks.

    - a list point
  """
  scope kernel
  settled by source, ptx
  needs tcgen05, two_cta
  attr tile_m : int "rows of the tile"
  attr operand : role{weight, kv}
  attr mode : enum{a, b}
  implies cluster_use(use = pair, size >= 2)
  excludes swapped
  alias "2-CTA", "cta_group::2"
  evidence cuda "cta_group::2"
}
property cluster_use L2 {
  title "C" definition "D" scope program settled by launch
  attr use : enum{pair, reduce} attr size : int
}
property swapped L2 { title "S" definition "D" scope kernel settled by source }
'''


def test_every_statement_becomes_a_field() -> None:
    words = compiled(TEXT)
    one = words.get("paired_mma")
    assert one is not None
    assert (one.level, one.title, one.scope) == (Level.L3, "MMA over two blocks", "kernel")
    assert one.definition == "One instruction spans a pair of blocks.\n\n- a list point"
    assert one.settled_by == (Tier.SOURCE, Tier.PTX)
    assert one.needs == ("tcgen05", "two_cta")
    assert one.attributes == (
        Attribute("tile_m", "int", (), "rows of the tile"),
        Attribute("operand", "role", ("weight", "kv")),
        Attribute("mode", "enum", ("a", "b")),
    )
    wanted = (Filter("use", Op.EQ, ("pair",)), Filter("size", Op.GE, (2,)))
    assert one.implies == (Term("cluster_use", wanted),)
    assert one.excludes == ("swapped",)
    assert one.aliases == ("2-CTA", "cta_group::2")
    assert one.evidence == {"cuda": "cta_group::2"}
    assert [one.id for one in words.properties] == ["paired_mma", "cluster_use", "swapped"]


def test_the_hash_covers_the_meaning_only() -> None:
    words = compiled(TEXT)
    assert words.content_hash == content_hash(words)
    assert compiled(TEXT.replace("spans\n    a pair", "spans a\n    pair").replace("  needs", "# note\nneeds")) == words
    assert compiled(TEXT.replace("enum{a, b}", "enum{b, a}")).content_hash != words.content_hash


def test_declarations_of_a_file_may_name_the_known_vocabulary() -> None:
    problems = Problems()
    nodes = parse(
        'property mine L3 { title "A" definition "B" scope kernel settled by source implies swapped }', "v.d2k"
    ).tree.every(syntax.Property)
    words = compile_vocabulary(nodes, problems, compiled(TEXT))
    assert problems.found == []
    assert [one.id for one in words.properties] == ["mine", "paired_mma", "cluster_use", "swapped"]


def test_the_committed_vocabulary_equals_its_source() -> None:
    words, problems = compile_source()
    assert [one.message for one in problems.found] == []
    committed = files("d2k.spec").joinpath("vocabulary.json").read_bytes()
    assert committed == to_json(words), "run `python -m d2k.compiler.vocabulary`"
