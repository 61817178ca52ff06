//! The switch as the daemon's extension: it reads the switch's files with the configuration, and makes the kernel match.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use rtnetlink::Handle;
use tokio::sync::Mutex;

use super::{SwitchConfig, SwitchFiles, SwitchKernel, configuration};
use srv6d_config::{Config, Errors};
use srv6d_daemon::kernel::KernelError;
use srv6d_daemon::{Configured, Extension, Overlay, Synced};
use srv6d_plan::Environment;

/// Reads `[sonic]` for a daemon. All switches that it reads share one record of the changes made to the kernel.
#[derive(Clone, Debug, Default)]
pub struct SwitchExtension {
    kernel: Arc<Mutex<SwitchKernel>>,
}

/// One switch that the daemon runs, or has run.
#[derive(Debug)]
struct RunningSwitch {
    files: SwitchFiles,
    extension: SwitchExtension,
}

impl SwitchExtension {
    fn configured(&self, read: SwitchConfig) -> Configured {
        let SwitchConfig { config, files } = read;
        let overlay = files.map(|files| Arc::new(RunningSwitch { files, extension: self.clone() }) as Arc<dyn Overlay>);
        Configured { config: Arc::new(config), overlay }
    }
}

impl Extension for SwitchExtension {
    fn read(&self, text: &str, filename: &str, interfaces: &[String]) -> Result<Configured, Errors> {
        configuration(text, filename, Some(interfaces)).map(|read| self.configured(read))
    }
}

impl Overlay for RunningSwitch {
    fn written(&self) -> &Arc<Config> {
        &self.files.written
    }

    fn for_interfaces(&self, interfaces: &[String]) -> Option<Result<Configured, Errors>> {
        let read = self.files.for_interfaces(interfaces)?;
        Some(read.map(|read| self.extension.configured(read)))
    }

    fn laid_over<'e>(&self, environment: &'e Environment) -> Cow<'e, Environment> {
        self.files.laid_over(environment)
    }

    fn port_of(&self, name: &str) -> Option<String> {
        srv6d_sonic::port_of_wire(name)
    }

    fn sync<'a>(&'a self, handle: &'a Handle) -> LocalBoxFuture<'a, Result<Synced, KernelError>> {
        async {
            let Some(wanted) = self.files.wanted() else { return Ok(Synced::default()) };
            self.extension.kernel.lock().await.sync(handle, &wanted).await
        }
        .boxed_local()
    }
}
