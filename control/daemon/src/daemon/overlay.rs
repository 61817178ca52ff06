//! What a program around the daemon adds: tables and files of its own that become configuration, and a kernel that is
//! made to match them.
//!
//! ```text
//! Extension ── reads ──► Configured { config, overlay }
//!                                       │        ├─ laid_over: the environment as it will be ──► plan
//!                                       │        └─ sync: the kernel becomes what the files say
//!                                       └────────────────────────────────────────────────────────► plan
//! ```

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use rtnetlink::Handle;

use crate::kernel::KernelError;
use srv6d_config::{Config, Errors};
use srv6d_plan::Environment;

/// Reads the daemon's configurations.
pub trait Extension: fmt::Debug + Send + Sync {
    /// Reads a configuration. `interfaces` are those that exist.
    ///
    /// # Errors
    /// All mistakes in the text, or in the files that it names.
    fn read(&self, text: &str, filename: &str, interfaces: &[String]) -> Result<Configured, Errors>;
}

/// A configuration, and what an extension adds to it.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// The configuration, with all that was added.
    pub config: Arc<Config>,
    /// The rest of what was added. `None`: nothing.
    pub overlay: Option<Arc<dyn Overlay>>,
}

/// An overlay: what an extension adds to one configuration, apart from entries.
pub trait Overlay: fmt::Debug + Send + Sync {
    /// Returns the configuration as it is written, without what was added. All evaluations of one text share it.
    fn written(&self) -> &Arc<Config>;

    /// Evaluates the same text again for other interfaces. `None`: the result would be the same.
    ///
    /// # Errors
    /// The errors are those of [`Extension::read`].
    fn for_interfaces(&self, interfaces: &[String]) -> Option<Result<Configured, Errors>>;

    /// Returns the environment as it will be after [`Overlay::sync`].
    fn laid_over<'e>(&self, environment: &'e Environment) -> Cow<'e, Environment>;

    /// Returns the port that has `name` as its second name.
    fn port_of(&self, name: &str) -> Option<String>;

    /// Makes the kernel match as far as possible. It is cheap if nothing has to be done.
    fn sync<'a>(&'a self, handle: &'a Handle) -> LocalBoxFuture<'a, Result<Synced, KernelError>>;
}

/// The result of one [`Overlay::sync`].
#[derive(Debug, Default)]
pub struct Synced {
    /// Interfaces that now have another name, by index.
    pub renamed: Vec<(u32, String)>,
    /// Descriptions of what could not be done.
    pub trouble: Vec<String>,
}

impl Configured {
    /// Returns the environment with which the configuration is planned.
    pub fn environment<'e>(&self, environment: &'e Environment) -> Cow<'e, Environment> {
        self.overlay.as_ref().map_or(Cow::Borrowed(environment), |overlay| overlay.laid_over(environment))
    }

    /// Returns the configuration that the same text gives for other interfaces.
    ///
    /// # Errors
    /// The errors are those of [`Extension::read`].
    pub fn for_interfaces(self, interfaces: &[String]) -> Result<Self, Errors> {
        self.overlay.as_ref().and_then(|overlay| overlay.for_interfaces(interfaces)).unwrap_or(Ok(self))
    }

    /// Whether both come from one text that was read once. Ports that came or went since then make no other one of it.
    pub fn is_same_text(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.written(), other.written())
    }

    fn written(&self) -> &Arc<Config> {
        self.overlay.as_ref().map_or(&self.config, |overlay| overlay.written())
    }
}
