//! `srv6d lab graph`: a topology as a graph, for documents.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::topology::{Role, Topology};

/// Language of the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Graphviz: `srv6d lab graph | dot -Tsvg`.
    #[default]
    Dot,
    /// Mermaid, which GitHub and GitLab draw in Markdown.
    Mermaid,
}

/// The tiers, in the order from top to bottom.
const TIERS: [Role; 3] = [Role::Spine, Role::Leaf, Role::Host];

// Writing into a String cannot fail, so the result is ignored by `let _`.

/// Returns the graph of a topology. Spines are on top, hosts at the bottom.
pub fn graph(topology: &Topology, format: Format) -> String {
    match format {
        Format::Dot => dot(topology),
        Format::Mermaid => mermaid(topology),
    }
}

fn dot(topology: &Topology) -> String {
    let mut text = format!(
        "graph \"{}\" {{\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n  edge [fontsize=8, \
         fontname=\"sans-serif\"];\n  ranksep=1.2;\n",
        topology.name
    );
    for tier in TIERS {
        let nodes: Vec<String> = topology.tier(tier).map(|node| format!("\"{}\";", node.name)).collect();
        if !nodes.is_empty() {
            let _ = writeln!(text, "  {{ rank=same; {} }}", nodes.join(" "));
        }
    }
    for [upper, lower] in links(topology) {
        let [(above, port_above), (below, port_below)] = [upper, lower];
        let ports = format!("taillabel=\"{port_above}\", headlabel=\"{port_below}\"");
        let _ = writeln!(text, "  \"{above}\" -- \"{below}\" [{ports}];");
    }
    text + "}\n"
}

fn mermaid(topology: &Topology) -> String {
    let mut text = "graph TD\n".to_owned();
    for tier in TIERS {
        for node in topology.tier(tier) {
            let _ = writeln!(text, "  {0}[\"{0}\"]", node.name);
        }
    }
    for [(above, port_above), (below, port_below)] in links(topology) {
        let _ = writeln!(text, "  {above} ---|\"{port_above} - {port_below}\"| {below}");
    }
    text
}

/// Returns node and port of the two ends of each link, the upper one first.
fn links(topology: &Topology) -> impl Iterator<Item = [(&str, &str); 2]> {
    let height = |node: &str| {
        let role = topology.node(node).map(|node| node.role);
        TIERS.iter().position(|tier| Some(*tier) == role)
    };
    topology.links().map(move |link| {
        let mut ends = link.ends.each_ref().map(|end| (end.node.as_str(), end.port.as_str()));
        ends.sort_by_key(|(node, _)| height(node));
        ends
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use super::*;
    use crate::FABRIC;

    #[test]
    fn every_node_and_link_is_in_the_graph() {
        let topology = Topology::parse(FABRIC, "fabric").unwrap();
        let dot = graph(&topology, Format::Dot);
        assert!(dot.starts_with("graph \"fabric\" {") && dot.ends_with("}\n"), "{dot}");
        assert!(dot.contains("{ rank=same; \"spine00\"; \"spine01\"; \"spine02\"; }"), "{dot}");
        assert!(dot.contains("\"spine01\" -- \"leaf00\" [taillabel=\"eth1\", headlabel=\"eth2\"];"), "{dot}");
        assert_eq!(dot.matches(" -- ").count(), 12);
        let mermaid = graph(&topology, Format::Mermaid);
        assert!(mermaid.starts_with("graph TD\n  spine00[\"spine00\"]\n"), "{mermaid}");
        assert!(mermaid.contains("  leaf00 ---|\"eth4 - eth1\"| host00\n"), "{mermaid}");
        assert_eq!(mermaid.matches(" ---|").count(), 12);
    }
}
