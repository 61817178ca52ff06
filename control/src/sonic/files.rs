//! `[sonic]`: the two files of a switch, read, and what they come to added to the configuration.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use srv6d_sonic::{Finding, Severity, Switch, Usd};
use toml::Spanned;

use super::Wanted;
use crate::config::{self, Config, Errors, Findings, RouterMac, Sonic, SwitchUsd};
use crate::files;
use crate::plan::Environment;

/// What the files of `[sonic]` say.
#[derive(Clone, Debug)]
pub struct SwitchFiles {
    /// The switch.
    pub switch: Switch,
    /// What is noteworthy about the files.
    pub findings: Vec<Finding>,
    /// The file alone, without what the switch adds.
    base: Arc<Config>,
    config_db: Option<String>,
    frr: Option<String>,
    /// Ports that existed when the files were read.
    present: BTreeSet<String>,
}

impl SwitchFiles {
    /// Both were read from the same text at the same time.
    pub fn same_file(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.base, &other.base)
    }
}

/// Reads a configuration, and the files of a switch that it names. `interfaces`: those that exist; `None`: unknown.
///
/// # Errors
/// Every mistake in the text, or in the files.
pub fn configuration(text: &str, filename: &str, interfaces: Option<&[String]>) -> Result<Config, Errors> {
    let config = config::parse(text, filename)?;
    let Some(sonic) = &config.sonic else { return Ok(config) };
    let mut found = Findings::new(config.source.clone());
    let directory = Path::new(filename).parent().unwrap_or(Path::new(""));
    let config_db = file(sonic.config_db.as_ref(), "config_db", directory, &mut found);
    let frr = file(sonic.frr.as_ref(), "frr", directory, &mut found);
    found.finish()?;
    expand(&Arc::new(config), config_db, frr, interfaces)
}

/// The same files, now that other interfaces exist; `None`: that makes no difference.
///
/// # Errors
/// As [`configuration`].
pub fn with_interfaces(config: &Config, interfaces: &[String]) -> Option<Result<Config, Errors>> {
    let files = config.switch.as_ref()?;
    if files.present == ports(interfaces) {
        return None;
    }
    Some(expand(&files.base, files.config_db.clone(), files.frr.clone(), Some(interfaces)))
}

fn expand(
    base: &Arc<Config>,
    config_db: Option<String>,
    frr: Option<String>,
    interfaces: Option<&[String]>,
) -> Result<Config, Errors> {
    let Some(sonic) = &base.sonic else { return Ok(Config::clone(base)) };
    let strict = sonic.strict.as_ref().is_some_and(|strict| *strict.get_ref());
    let reading = srv6d_sonic::read(config_db.as_deref(), frr.as_deref(), interfaces, strict)
        .map_err(|findings| refusal(base, sonic, &findings))?;
    let usd = match sonic.usd.as_ref().map(|usd| *usd.get_ref()) {
        Some(SwitchUsd::Configured) => Usd::Configured,
        Some(SwitchUsd::Always) | None => Usd::Always,
    };
    let conversion = reading.switch.to_toml(usd);
    let mut config = config::extend(base, &name(sonic), &conversion.toml)?;
    config.switch = Some(Arc::new(SwitchFiles {
        switch: reading.switch,
        findings: reading.findings.into_iter().chain(conversion.findings).collect(),
        base: Arc::clone(base),
        config_db,
        frr,
        present: ports(interfaces.unwrap_or_default()),
    }));
    Ok(config)
}

/// What the text that is made of the files is called: `sonic(config_db.json, frr.conf)`.
fn name(sonic: &Sonic) -> String {
    let files = sonic.config_db.iter().chain(&sonic.frr);
    let names = files.filter_map(|path| path.get_ref().file_name()).map(|name| name.to_string_lossy().into_owned());
    format!("sonic({})", names.collect::<Vec<_>>().join(", "))
}

/// How many of the interfaces are ports.
pub fn count_ports(interfaces: &[String]) -> usize {
    ports(interfaces).len()
}

/// Ports among the interfaces, whichever of their two names they have at the moment.
fn ports(interfaces: &[String]) -> BTreeSet<String> {
    let port = |name: &String| {
        srv6d_sonic::port_of_wire(name).or_else(|| srv6d_sonic::wire_of_port(name).map(|_| name.clone()))
    };
    interfaces.iter().filter_map(port).collect()
}

fn file(path: Option<&Spanned<PathBuf>>, key: &str, directory: &Path, found: &mut Findings) -> Option<String> {
    let path = path?;
    let file = directory.join(path.get_ref());
    match files::read_text(&file) {
        Ok(text) => Some(text),
        Err(why) => {
            let what = format!("cannot read {}: {why}", file.display());
            let fix = format!("name a file that exists and can be read, or remove `{key}`");
            found.error(path.span(), &format!("[sonic] {key}"), what, fix);
            None
        }
    }
}

/// Errors in the files, at the keys that name them.
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

/// The key that names the file of a finding, and where that is written.
fn place<'a>(sonic: &Sonic, finding: &Finding) -> (&'a str, std::ops::Range<usize>) {
    let in_frr = finding.place.starts_with("frr.conf");
    let (key, path) = if in_frr { ("frr", &sonic.frr) } else { ("config_db", &sonic.config_db) };
    (key, path.as_ref().map(Spanned::span).unwrap_or_default())
}

/// The kernel as it will be once it matches the switch.
pub fn laid_over<'a>(config: &Config, environment: &'a Environment) -> Cow<'a, Environment> {
    let Some(wanted) = wanted(config) else { return Cow::Borrowed(environment) };
    let mut environment = environment.clone();
    wanted.lay_over(&mut environment);
    Cow::Owned(environment)
}

/// What the kernel has to look like; `None`: no switch, or the kernel is not to be touched.
pub fn wanted(config: &Config) -> Option<Wanted> {
    let (sonic, files) = (config.sonic.as_ref()?, config.switch.as_ref()?);
    let on = sonic.kernel.as_ref().is_none_or(|kernel| *kernel.get_ref());
    let switch_mac = sonic.mac.as_ref().is_some_and(|mac| *mac.get_ref() == RouterMac::Switch);
    on.then(|| Wanted::of(&files.switch, switch_mac))
}

/// Names of the interfaces of this namespace; empty where they cannot be listed.
pub fn interfaces() -> Vec<String> {
    let Ok(all) = nix::net::if_::if_nameindex() else { return Vec::new() };
    all.iter().map(|interface| interface.name().to_string_lossy().into_owned()).collect()
}

/// The same for a look at files, which may be those of another machine: `None` where there is no port at all.
pub fn interfaces_of_a_switch() -> Option<Vec<String>> {
    let all = interfaces();
    (!ports(&all).is_empty()).then_some(all)
}

/// What is noteworthy about the files, among the findings of a plan.
pub fn report(config: &Config, found: &mut Findings) {
    let (Some(sonic), Some(files)) = (&config.sonic, &config.switch) else { return };
    for finding in &files.findings {
        let (key, span) = place(sonic, finding);
        let (entry, what) = (format!("[sonic] {key}"), format!("{}: {}", finding.place, finding.what));
        match finding.severity {
            Severity::Note => found.note(span, &entry, what),
            Severity::Ignored => found.warning(span, &entry, format!("{what}: left out"), ""),
            Severity::Tolerated | Severity::Error => found.warning(span, &entry, what, ""),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::plan;

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
        let plan = plan::plan(&config, &Environment::default()).unwrap();
        assert!(plan.notes.iter().any(|note| note.headline().starts_with("note: ") && note.what.contains("PORT")));
        assert!(plan.pending.is_empty(), "{:?}", plan.pending);
    }
}
