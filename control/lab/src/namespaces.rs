//! Names of the nodes' network namespaces.

use srv6d_netns as netns;

use super::error::LabError;

/// Returns the name of a node's namespace.
pub fn name(lab: &str, node: &str) -> String {
    format!("srv6d-{lab}-{node}")
}

/// Refuses a namespace that exists already: it belongs to somebody else, so the lab must neither use nor delete it.
pub fn refuse_existing(name: &str) -> Result<(), LabError> {
    if netns::path(name).exists() {
        return Err(LabError::Failed(format!(
            "network namespace {name} exists already, and no running lab owns it\n\
             fix: delete it with `ip netns del {name}`, or choose another name with --name"
        )));
    }
    Ok(())
}
