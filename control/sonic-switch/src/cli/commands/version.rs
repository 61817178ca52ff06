//! `show version`, and times in SONiC's format. All times are UTC, as in a container.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use srv6d_sonic_cli::tables::{self, Version};

use super::node::Node;
use super::tree::wrong;
use srv6d_command::{Failure, output};

/// Carries out `show version [--brief]`.
pub fn version(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    if let Some(other) = arguments.iter().find(|argument| !matches!(argument.as_str(), "--brief" | "--verbose")) {
        return Err(wrong("show version", &format!("no such option: {other}")));
    }
    // A switch without configuration has a version, too.
    let device = node.switch().map(|switch| switch.device).unwrap_or_default();
    let now = SystemTime::now();
    let said = Version {
        srv6d: env!("CARGO_PKG_VERSION").to_owned(),
        distribution: distribution().unwrap_or_else(|| "Linux".to_owned()),
        kernel: line("/proc/sys/kernel/osrelease"),
        platform: device.platform,
        hwsku: device.hwsku,
        uptime: uptime(now),
        date: date(now),
    };
    output::print(&tables::version(&said))
}

fn line(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

/// Returns name and version of the distribution, for example `Debian 12.11`.
fn distribution() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim_matches('"').to_owned())
    };
    if field("ID")? == "debian" {
        let number = fs::read_to_string("/etc/debian_version").ok().or_else(|| field("VERSION_ID"))?;
        return Some(format!("Debian {}", number.trim()));
    }
    field("PRETTY_NAME")
}

/// Returns ` 14:40:15 up 3 min, 0 users, load average: 1.26, 1.45, 0.66`, in the format of uptime(1).
fn uptime(now: SystemTime) -> String {
    const MINUTE: u64 = 60;
    let seconds = line("/proc/uptime").split('.').next().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let (days, minutes) = (seconds / (24 * 60 * MINUTE), seconds / MINUTE % (24 * 60));
    let days = match days {
        0 => String::new(),
        1 => "1 day, ".to_owned(),
        days => format!("{days} days, "),
    };
    let time = if minutes < 60 { format!("{minutes} min") } else { format!("{:2}:{:02}", minutes / 60, minutes % 60) };
    let load: Vec<String> = line("/proc/loadavg").split(' ').take(3).map(str::to_owned).collect();
    let (_, clock) = moment(now);
    format!(" {clock} up {days}{time},  0 users,  load average: {}", load.join(", ")).trim_start().to_owned()
}

/// Formats a time as `Fri 22 May 2026 14:40:15`.
fn date(now: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let weekday = DAYS.iter().cycle().nth(usize::try_from(since / 86_400 % 7).unwrap_or_default()).unwrap_or(&"");
    let (day, clock) = moment(now);
    let mut parts = day.split('-');
    let (year, month, day) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let month = month.parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?)).unwrap_or(&"");
    format!("{weekday} {day} {month} {year} {clock}")
}

/// Formats a time as date and clock: `2026-05-22` and `14:40:15`.
fn moment(time: SystemTime) -> (String, String) {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    let (day, clock) = text.split_once('T').unwrap_or((&text, ""));
    (day.to_owned(), clock.trim_end_matches('Z').to_owned())
}

/// Formats a time as Python does: `2026-05-22 14:40:15.123456`.
pub fn timestamp(microseconds: u64) -> String {
    let (day, clock) = moment(UNIX_EPOCH + Duration::from_micros(microseconds));
    format!("{day} {clock}.{:06}", microseconds % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_sonic_does() {
        let time = UNIX_EPOCH + Duration::from_secs(1_779_460_815);
        assert_eq!(date(time), "Fri 22 May 2026 14:40:15");
        assert_eq!(timestamp(1_779_460_815_000_042), "2026-05-22 14:40:15.000042");
    }
}
