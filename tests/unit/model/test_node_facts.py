"""What follows from each node alone is what it would be if every node were asked."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.fleet import Node
from gpuwatch.model.node_facts import NodeFacts, changed_places
from tests.support.builders.fleet import a_node

LOOKS = st.lists(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=5), min_size=2, max_size=5)


def _word(node: Node) -> str:
    return f"{node.id} {node.pool}"


def _pool(node: Node) -> str:
    return node.pool


@given(looks=LOOKS)
def test_facts_are_those_of_the_nodes_as_they_are(looks: list[list[tuple[str, bool]]]) -> None:
    """Nodes come, go, change places, and become others, or equal ones that are not the same object."""
    facts, kept = NodeFacts(), {name: a_node(name) for name in "abcd"}
    for look in looks:
        nodes = tuple(replace(kept[name], pool=f"{name}-{len(look)}") if other else kept[name] for name, other in look)

        assert facts.facts_of(_word, nodes) == [_word(node) for node in nodes]
        assert facts.facts_of(_pool, nodes) == [_pool(node) for node in nodes]
        assert facts.facts_of(_word, nodes) == [_word(node) for node in nodes]


def test_only_other_nodes_are_asked() -> None:
    """The very same node is not asked again."""
    asked = list[str]()

    def note(node: Node) -> None:
        asked.append(node.id)

    facts, nodes = NodeFacts(), [a_node("a"), a_node("b")]
    facts.facts_of(note, tuple(nodes))
    facts.facts_of(note, (nodes[0], replace(nodes[1])))

    assert asked == ["a", "b", "b"]
    assert changed_places(nodes, (nodes[0], replace(nodes[1]))) == [1]
