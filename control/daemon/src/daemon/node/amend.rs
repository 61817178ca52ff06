//! Puts a few changes of the kernel in force without a whole plan.

use std::net::IpAddr;

use tracing::{error, info, warn};

use super::{Cause, Inputs, Node, RunError};
use crate::kernel::Mirror;
use crate::probes::UnusedPaths;
use srv6d_plan::{self as plan, Diff};

impl Node {
    /// Puts a few changed routes in force, and then changed neighbours, if nothing else has changed. Returns false if
    /// a whole plan is needed.
    pub(super) async fn amend(&mut self, mirror: &Mirror) -> bool {
        self.unplanned.is_little() && self.amend_routes(mirror).await && self.resolve(mirror)
    }

    async fn amend_routes(&mut self, mirror: &Mirror) -> bool {
        if self.unplanned.routes.is_empty() {
            return true;
        }
        let next_hops: Vec<IpAddr> = self.dataplane.next_hops().into_iter().map(|(_, address, _)| address).collect();
        let Inputs { configured, offers } = &self.inputs;
        let environment = &configured.environment(&self.environment);
        let inputs = plan::PlanInputs { config: &configured.config, offers, environment };
        let Some(change) = plan::plan_change(inputs, &self.plan, &self.unplanned.routes, &next_hops) else {
            return false;
        };
        let (diff, changes) = self.plan.amend(change);
        if !diff.is_empty() {
            if let Err(why) = self.dataplane.amend(&changes) {
                error!("cannot amend the tables with the changed routes, everything is planned again: {why}");
                return false;
            }
            self.note_generation(&diff, &Cause::Kernel);
            self.steer_amended(&changes, mirror).await;
            self.ask_for_unresolved(mirror);
        }
        self.unplanned.routes.clear();
        true
    }

    /// Puts changed neighbours in force. With many routes a whole plan takes much longer than the tables, and
    /// neighbours need none.
    fn resolve(&mut self, mirror: &Mirror) -> bool {
        if !self.unplanned.neighbors {
            return true;
        }
        let environment = self.inputs.configured.environment(&self.environment);
        let Some(neighbors) = plan::neighbors(self.inputs.config(), &environment, &self.plan) else { return false };
        let (diff, changes) = self.plan.resolve(neighbors);
        if !diff.is_empty() {
            if let Err(why) = self.dataplane.amend(&changes) {
                error!("cannot amend the tables with the changed neighbours, everything is planned again: {why}");
                return false;
            }
            self.note_generation(&diff, &Cause::Kernel);
            self.ask_for_unresolved(mirror);
        }
        self.unplanned.neighbors = false;
        true
    }

    /// Leaves out the paths that probes have found dead, and uses those again that work.
    pub async fn follow_paths(&mut self, unused: UnusedPaths, mirror: &Mirror) -> Result<(), RunError> {
        let before = std::mem::replace(&mut self.environment.unused_paths, unused);
        let unused = &self.environment.unused_paths;
        for path in unused.difference(&before) {
            warn!("path {path} is left out: its probes get lost; see `srv6d show probes`");
        }
        for path in before.difference(unused) {
            info!("path {path} is used again");
        }
        let (diff, changes) = self.plan.use_paths(unused);
        if diff.is_empty() {
            return Ok(());
        }
        if let Err(why) = self.dataplane.amend(&changes) {
            error!("cannot amend the tables with the paths that work, everything is planned again: {why}");
            return self.plan_and_publish(self.inputs.clone(), Cause::Probes, mirror).await;
        }
        self.note_generation(&diff, &Cause::Probes);
        // Other paths may have other MTUs.
        self.steer_amended(&changes, mirror).await;
        self.ask_for_unresolved(mirror);
        Ok(())
    }

    fn note_generation(&mut self, diff: &Diff, cause: &Cause) {
        let generation = self.dataplane.generation();
        self.history.push(generation, &cause.to_string(), diff, self.inputs.clone());
        info!("generation {} ({cause}): {diff}", generation.0);
    }
}
