//! `[sonic]`: reads the two files of a switch and adds what they describe to the configuration.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use srv6d_sonic::{Finding, Severity, Switch, Usd};
use toml::Spanned;

use super::Wanted;
use super::table::{RouterMac, Sonic, SwitchUsd};
use srv6d_config::{self as config, Config, Diagnostic, Errors, Findings};
use srv6d_daemon::kernel;
use srv6d_plan::{self as plan, Environment, Plan};

/// A configuration, and the files of a switch that are a part of it.
#[derive(Clone, Debug, Default)]
pub struct SwitchConfig {
    /// The configuration, extended by what the files describe.
    pub config: Config,
    /// The files. `None`: there is no `[sonic]`.
    pub files: Option<SwitchFiles>,
}

/// The contents of the files of `[sonic]`.
#[derive(Clone, Debug)]
pub struct SwitchFiles {
    /// The switch that the files describe.
    pub switch: Switch,
    /// The table `[sonic]`.
    pub sonic: Sonic,
    /// The configuration of srv6d.toml alone, without what the switch adds.
    pub(super) written: Arc<Config>,
    config_db: Option<String>,
    frr: Option<String>,
    /// Ports that existed when the files were read.
    present: BTreeSet<String>,
}

/// Reads a configuration and the files of a switch that it names. `interfaces` are the interfaces that exist; `None`:
/// unknown.
///
/// # Errors
/// All mistakes in the text or in the files.
pub fn configuration(text: &str, filename: &str, interfaces: Option<&[String]>) -> Result<SwitchConfig, Errors> {
    let (config, sonic) = config::parse_with::<Sonic>(text, filename)?;
    let Some(sonic) = sonic else { return Ok(SwitchConfig { config, files: None }) };
    let mut found = Findings::new(config.source.clone());
    let directory = Path::new(filename).parent().unwrap_or(Path::new(""));
    let config_db = file(sonic.config_db.as_ref(), "config_db", directory, &mut found);
    let frr = file(sonic.frr.as_ref(), "frr", directory, &mut found);
    found.finish()?;
    expand(&Arc::new(config), sonic, config_db, frr, interfaces)
}

fn expand(
    written: &Arc<Config>,
    sonic: Sonic,
    config_db: Option<String>,
    frr: Option<String>,
    interfaces: Option<&[String]>,
) -> Result<SwitchConfig, Errors> {
    let strict = sonic.strict.as_ref().is_some_and(|strict| *strict.get_ref());
    let reading = srv6d_sonic::read(config_db.as_deref(), frr.as_deref(), interfaces, strict)
        .map_err(|findings| refusal(written, &sonic, &findings))?;
    let usd = match sonic.usd.as_ref().map(|usd| *usd.get_ref()) {
        Some(SwitchUsd::Configured) => Usd::Configured,
        Some(SwitchUsd::Always) | None => Usd::Always,
    };
    let conversion = reading.switch.to_toml(usd);
    let mut config = config::extend(written, &name(&sonic), &conversion.toml)?;
    config.remarks = remarks(&config, &sonic, reading.findings.iter().chain(&conversion.findings));
    let files = SwitchFiles {
        switch: reading.switch,
        sonic,
        written: Arc::clone(written),
        config_db,
        frr,
        present: ports(interfaces.unwrap_or_default()),
    };
    Ok(SwitchConfig { config, files: Some(files) })
}

impl SwitchConfig {
    /// Returns the environment as it will be once the kernel matches the switch.
    pub fn environment<'e>(&self, environment: &'e Environment) -> Cow<'e, Environment> {
        self.files.as_ref().map_or(Cow::Borrowed(environment), |files| files.laid_over(environment))
    }

    /// Plans the configuration.
    ///
    /// # Errors
    /// The errors are those of [`plan::plan`].
    pub fn plan(&self, environment: &Environment) -> Result<Plan, Errors> {
        plan::plan(&self.config, &self.environment(environment))
    }
}

impl SwitchFiles {
    /// Evaluates the same files again for other interfaces. `None`: the result would be the same.
    ///
    /// # Errors
    /// The errors are those of [`configuration`].
    pub fn for_interfaces(&self, interfaces: &[String]) -> Option<Result<SwitchConfig, Errors>> {
        if self.present == ports(interfaces) {
            return None;
        }
        let (config_db, frr) = (self.config_db.clone(), self.frr.clone());
        Some(expand(&self.written, self.sonic.clone(), config_db, frr, Some(interfaces)))
    }

    /// Returns the environment as it will be once the kernel matches the switch.
    pub fn laid_over<'e>(&self, environment: &'e Environment) -> Cow<'e, Environment> {
        let Some(wanted) = self.wanted() else { return Cow::Borrowed(environment) };
        let mut environment = environment.clone();
        wanted.lay_over(&mut environment);
        Cow::Owned(environment)
    }

    /// Returns the state that the kernel must have. `None`: the kernel is not to be changed.
    pub fn wanted(&self) -> Option<Wanted> {
        let on = self.sonic.kernel.as_ref().is_none_or(|kernel| *kernel.get_ref());
        let switch_mac = self.sonic.mac.as_ref().is_some_and(|mac| *mac.get_ref() == RouterMac::Switch);
        on.then(|| Wanted::of(&self.switch, switch_mac))
    }
}

/// Returns the name of the text that is made from the files: `sonic(config_db.json, frr.conf)`.
fn name(sonic: &Sonic) -> String {
    let files = sonic.config_db.iter().chain(&sonic.frr);
    let names = files.filter_map(|path| path.get_ref().file_name()).map(|name| name.to_string_lossy().into_owned());
    format!("sonic({})", names.collect::<Vec<_>>().join(", "))
}

/// Counts the ports among the interfaces.
pub fn count_ports(interfaces: &[String]) -> usize {
    ports(interfaces).len()
}

/// Returns the ports among the interfaces, whichever of their two names they have at the moment.
fn ports(interfaces: &[String]) -> BTreeSet<String> {
    let port = |name: &String| {
        srv6d_sonic::port_of_wire(name).or_else(|| srv6d_sonic::wire_of_port(name).map(|_| name.clone()))
    };
    interfaces.iter().filter_map(port).collect()
}

fn file(path: Option<&Spanned<PathBuf>>, key: &str, directory: &Path, found: &mut Findings) -> Option<String> {
    let path = path?;
    let file = directory.join(path.get_ref());
    match srv6d_text::read_text(&file) {
        Ok(text) => Some(text),
        Err(why) => {
            let what = format!("cannot read {}: {why}", file.display());
            let fix = format!("name a file that exists and can be read, or remove `{key}`");
            found.error(path.span(), &format!("[sonic] {key}"), what, fix);
            None
        }
    }
}

/// Makes errors of the findings in the files. Each points at the key that names the file.
fn refusal(config: &Config, sonic: &Sonic, findings: &[Finding]) -> Errors {
    let mut found = Findings::new(config.source.clone());
    for finding in findings.iter().filter(|finding| finding.severity == Severity::Error) {
        let (key, span) = place(sonic, finding);
        found.error(span, &format!("[sonic] {key}"), format!("{}: {}", finding.place, finding.what), "");
    }
    match found.finish() {
        Err(errors) => errors,
        Ok(_) => Errors(Vec::new()),
    }
}

/// Returns the key that names the file of a finding, and the position of that key.
fn place<'a>(sonic: &Sonic, finding: &Finding) -> (&'a str, std::ops::Range<usize>) {
    let in_frr = finding.place.starts_with("frr.conf");
    let (key, path) = if in_frr { ("frr", &sonic.frr) } else { ("config_db", &sonic.config_db) };
    (key, path.as_ref().map(Spanned::span).unwrap_or_default())
}

/// Returns the interfaces of this namespace, for examining files that may belong to another machine. `None`: there is no
/// port at all.
pub fn interfaces_of_a_switch() -> Option<Vec<String>> {
    let all = kernel::interfaces();
    (!ports(&all).is_empty()).then_some(all)
}

/// Makes remarks about the configuration of findings about the files.
fn remarks<'f>(config: &Config, sonic: &Sonic, findings: impl Iterator<Item = &'f Finding>) -> Vec<Diagnostic> {
    let mut found = Findings::new(config.source.clone());
    for finding in findings {
        let (key, span) = place(sonic, finding);
        let (entry, what) = (format!("[sonic] {key}"), format!("{}: {}", finding.place, finding.what));
        match finding.severity {
            Severity::Note => found.note(span, &entry, what),
            Severity::Ignored => found.warning(span, &entry, format!("{what}: left out"), ""),
            Severity::Tolerated | Severity::Error => found.warning(span, &entry, what, ""),
        }
    }
    found.into_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn what_is_worth_knowing_about_the_files_waits_for_nothing() {
        let directory = std::env::temp_dir().join(format!("srv6d-notes-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let database = directory.join("config_db.json");
        std::fs::write(&database, "{}").unwrap();
        let filename = directory.join("srv6d.toml").display().to_string();
        let text = format!("[sonic]\nconfig_db = \"{}\"\n", database.display());
        let config = configuration(&text, &filename, Some(&[])).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let plan = config.plan(&Environment::default()).unwrap();
        assert!(plan.notes.iter().any(|note| note.headline().starts_with("note: ") && note.what.contains("PORT")));
        assert!(plan.pending.is_empty(), "{:?}", plan.pending);
    }
}
