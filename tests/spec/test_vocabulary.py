"""The vocabulary: equal to its source, sound in itself, and corrected where the first draft of it was wrong."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files

import pytest

from d2k.compiler.vocabulary import compile_source, to_json
from d2k.spec.check import Op
from d2k.spec.hardware import ARCHITECTURES, FEATURES
from d2k.spec.vocabulary import Level, Property, Tier, vocabulary

PROPERTIES = vocabulary().properties


def words(identifier: str) -> Property:
    found = vocabulary().get(identifier)
    assert found is not None, identifier
    return found


def members(identifier: str, attribute: str) -> tuple[str, ...]:
    found = words(identifier).attribute(attribute)
    assert found is not None, attribute
    return found.members


def test_the_committed_json_is_what_its_source_compiles_to() -> None:
    compiled, problems = compile_source()
    assert [one.message for one in problems.found] == []
    assert to_json(compiled) == files("d2k.spec").joinpath("vocabulary.json").read_bytes()


def test_seventy_properties_on_three_levels() -> None:
    assert Counter(one.level for one in PROPERTIES) == {Level.L1: 20, Level.L2: 25, Level.L3: 25}
    assert len({one.id for one in PROPERTIES}) == 70


@pytest.mark.parametrize("one", PROPERTIES, ids=lambda one: one.id)
def test_every_property_is_described_in_full(one: Property) -> None:
    assert one.title and one.title[0].isupper() and not one.title.endswith(".")
    assert one.definition.endswith(".") and len(one.definition) > 60
    assert set(one.evidence) == {"triton", "cuda"} and all(text.endswith(".") for text in one.evidence.values())
    assert one.aliases and all(one.aliases)
    assert one.settled_by[0] is Tier.SOURCE
    assert list(one.settled_by) == sorted(one.settled_by, key=list(Tier).index)
    assert all(attribute.definition for attribute in one.attributes)


def test_no_two_properties_share_an_alias() -> None:
    aliases = Counter(alias.lower() for one in PROPERTIES for alias in one.aliases)
    assert [alias for alias, count in aliases.items() if count > 1] == []
    assert not {one.id for one in PROPERTIES} & set(aliases)


def test_needs_are_features_that_some_target_has_and_one_lacks() -> None:
    for one in PROPERTIES:
        assert set(one.needs) <= set(FEATURES)
        assert not one.needs or any(set(one.needs) <= target.features for target in ARCHITECTURES.values())
    assert words("tma_bulk_copy").needs == ("tma",)
    # sm_120 has tensor maps, but neither wgmma nor tcgen05.
    assert not set(words("tmem_accumulator").needs) <= ARCHITECTURES["sm120"].features
    assert set(words("tma_bulk_copy").needs) <= ARCHITECTURES["sm120"].features


def test_what_a_property_implies_exists() -> None:
    for one in PROPERTIES:
        for term in one.implies:
            for each in term.filters:
                attribute = words(term.property).attribute(each.attribute)
                assert attribute is not None
                if each.op is Op.EQ and attribute.members:
                    assert set(each.values) <= set(attribute.members)


def test_compiled_code_cannot_deny_what_only_the_source_shows() -> None:
    for identifier in ("online_softmax", "exp2_scaled_softmax", "swap_ab"):
        assert words(identifier).settled_by == (Tier.SOURCE,)
    for identifier in ("tensor_core_mma", "cp_async_copy", "tma_bulk_copy"):
        assert Tier.PTX in words(identifier).settled_by
    for identifier in ("warp_specialization", "tmem_accumulator", "indirect_tile_load"):
        assert Tier.IR in words(identifier).settled_by
    for identifier in ("balanced_work_split", "conflict_free_smem"):
        assert Tier.PROFILE in words(identifier).settled_by


@pytest.mark.parametrize(
    "identifier", ["tma_bulk_copy", "cp_async_copy", "vectorized_global_access", "cache_policy_hint"]
)
def test_properties_of_memory_traffic_say_of_which_tensor_and_of_how_much_of_it(identifier: str) -> None:
    tensor, share = words(identifier).attribute("tensor"), words(identifier).attribute("share_percent")
    assert tensor is not None and tensor.type == "role"
    assert share is not None and share.type == "int"
    assert "at least half" in words(identifier).definition


def test_corrected_attributes() -> None:
    assert words("group_by_key").attribute("stable") is None
    assert members("tensor_core_mma", "instr") == ("mma_sync", "wgmma", "tcgen05")
    assert "kv" in members("tensor_core_mma", "m_axis")
    assert "90 percent" in words("tensor_core_mma").definition
    assert "head" in members("loop_order", "inner")


def test_corrected_definitions() -> None:
    assert "allocations" in words("no_global_intermediate").definition
    assert "memsets and copies counted" in words("op_chain_fusion").definition
    assert "no second global load" in words("single_pass_stats").definition
    assert "accumulators of its own" in words("ping_pong_consumers").definition
    assert "1.10" in words("balanced_work_split").definition
    assert "exits after reading its offsets" in words("ragged_work_only").definition
    assert "private to a block" in words("smem_histogram").definition
    assert "shifts" in words("halo_tile").evidence["triton"]
    assert "more items than blocks" in words("persistent_schedule").definition.replace("\n", " ")


def test_program_scope_is_for_what_several_kernels_do_together() -> None:
    program = {one.id for one in PROPERTIES if one.scope == "program"}
    assert {
        "op_chain_fusion",
        "split_partial_combine",
        "no_global_intermediate",
        "programmatic_dependent_launch",
    } <= program
    assert not {"output_tiling", "tma_bulk_copy", "online_softmax"} & program
