//! Few changes of the kernel: put in force without a whole plan.

use std::net::IpAddr;

use tracing::{error, info};

use super::{Cause, Inputs, Node};
use crate::kernel::Mirror;
use crate::plan::{self, Diff};

impl Node {
    /// Puts a few changed routes in force, and then other neighbours, if nothing else has changed. False: it takes a whole
    /// plan.
    pub(super) async fn amend(&mut self, mirror: &Mirror) -> bool {
        self.unplanned.is_little() && self.amend_routes(mirror).await && self.resolve(mirror)
    }

    async fn amend_routes(&mut self, mirror: &Mirror) -> bool {
        if self.unplanned.routes.is_empty() {
            return true;
        }
        let next_hops: Vec<IpAddr> = self.dataplane.next_hops().into_iter().map(|(_, address, _)| address).collect();
        let Inputs { config, offers } = &self.inputs;
        let sources = plan::Sources { config, offers, environment: &self.environment };
        let Some(amended) = plan::amended(sources, &self.plan, &self.unplanned.routes, &next_hops) else {
            return false;
        };
        let (diff, changes) = self.plan.amend(amended);
        if !diff.is_empty() {
            if let Err(why) = self.dataplane.amend(&changes) {
                error!("routes that changed are planned with all others: {why}");
                return false;
            }
            self.note_generation(&diff);
            self.steer_amended(&changes, mirror).await;
            self.ask_for_unresolved(mirror);
        }
        self.unplanned.routes.clear();
        true
    }

    /// Among many routes a whole plan takes much longer than the tables: neighbours come into both without one.
    fn resolve(&mut self, mirror: &Mirror) -> bool {
        if !self.unplanned.neighbors {
            return true;
        }
        let Some(neighbors) = plan::neighbors(&self.inputs.config, &self.environment, &self.plan) else { return false };
        let (diff, changes) = self.plan.resolve(neighbors);
        if !diff.is_empty() {
            if let Err(why) = self.dataplane.amend(&changes) {
                error!("neighbours that changed are planned with all else: {why}");
                return false;
            }
            self.note_generation(&diff);
            self.ask_for_unresolved(mirror);
        }
        self.unplanned.neighbors = false;
        true
    }

    fn note_generation(&mut self, diff: &Diff) {
        let (generation, cause) = (self.dataplane.generation(), Cause::Kernel);
        self.history.push(generation, &cause.to_string(), diff, self.inputs.clone());
        info!("generation {} ({cause}): {diff}", generation.0);
    }
}
