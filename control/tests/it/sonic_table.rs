//! Tests of `[sonic]` in srv6d.toml: the two files are converted into additional entries, and errors name their place.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::PathBuf;

use srv6d_config::{Errors, Spanned};
use srv6d_plan::Environment;
use srv6d_sonic_switch::{self as sonic, SwitchConfig, Wanted};

const CONFIG_DB: &str = include_str!("switch/config_db.json");
const FRR: &str = include_str!("switch/frr.conf");

/// A directory with the two files, which is removed at the end.
struct Files(PathBuf);

impl Files {
    fn new(config_db: &str, frr: &str) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("srv6d-table-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("config_db.json"), config_db).unwrap();
        fs::write(directory.join("frr.conf"), frr).unwrap();
        Self(directory)
    }

    fn read(&self, own: &str, interfaces: Option<&[&str]>) -> Result<SwitchConfig, Errors> {
        let directory = self.0.display();
        let text =
            format!("{own}\n[sonic]\nconfig_db = \"{directory}/config_db.json\"\nfrr = \"{directory}/frr.conf\"\n");
        let interfaces: Option<Vec<String>> =
            interfaces.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        sonic::configuration(&text, "srv6d.toml", interfaces.as_deref())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_the_files_come_to_stands_beside_what_is_written() {
    let files = Files::new(CONFIG_DB, FRR);
    let config = files.read("[[sid]]\nsid = \"fcbb:bbbb:7::/48\"\nbehavior = \"uN\"", None).unwrap();
    let plan = config.plan(&Environment::default()).unwrap();
    let sids: Vec<String> = plan.desired.sids.iter().map(|sid| sid.prefix.to_string()).collect();
    for sid in ["fcbb:bbbb:7::/48", "fcbb:bbbb:1::/48", "fcbb:bbbb:fe04::/48", "fcbb:bbbb:1:d046::/64"] {
        assert!(sids.iter().any(|known| known == sid), "{sid}: {sids:?}");
    }
    assert_eq!(plan.name, "leaf1");
}

#[test]
fn what_is_written_goes_first() {
    let files = Files::new(CONFIG_DB, FRR);
    let own = "[node]\nname = \"mine\"\n[[port]]\nname = \"Ethernet0\"\nrole = \"edge\"\n\
               [[route]]\nprefix = \"fcbb:bbbb:2::/48\"\ntype = \"unreachable\"";
    let config = files.read(own, None).unwrap();
    assert_eq!(config.config.ports.iter().filter(|port| port.get_ref().name.get_ref() == "Ethernet0").count(), 1);
    let plan = config.plan(&Environment::default()).unwrap();
    assert_eq!(plan.name, "mine");
    let route = plan.desired.routes.iter().find(|route| route.prefix.to_string() == "fcbb:bbbb:2::/48").unwrap();
    assert_eq!(route.action, srv6d_srv6::desired::RouteAction::Unreachable);
}

#[test]
fn an_error_names_the_file_it_is_in() {
    let missing = Files::new(CONFIG_DB, FRR);
    fs::remove_file(missing.0.join("frr.conf")).unwrap();
    let errors = missing.read("", None).unwrap_err().to_string();
    assert!(errors.contains("srv6d.toml:4:7: [sonic] frr: cannot read") && errors.contains("fix:"), "{errors}");

    let broken = Files::new("{ \"PORT\": ", FRR);
    let errors = broken.read("", None).unwrap_err().to_string();
    assert!(errors.contains("srv6d.toml:3:13: [sonic] config_db: config_db.json"), "{errors}");

    // The error is caused by an entry of srv6d.toml that does not fit the text generated from the files.
    let files = Files::new(CONFIG_DB, FRR);
    let config =
        files.read("[[neighbor]]\naddress = \"fe80::1\"\nport = \"Ethernet99\"\nmac = \"02:00:00:00:00:01\"", None);
    let errors = config.unwrap().plan(&Environment::default()).unwrap_err().to_string();
    assert!(errors.contains("srv6d.toml:3:8: [[neighbor]] port: no [[port]] is named \"Ethernet99\""), "{errors}");
    let config = files.read("[[port]]\nname = \"other\"\ndevice = \"Ethernet0\"", None).unwrap();
    let errors = config.plan(&Environment::default()).unwrap_err().to_string();
    assert!(errors.contains("error: sonic(config_db.json, frr.conf):"), "{errors}");
    assert!(errors.contains("Ethernet0 is already the port in line 1"), "{errors}");
}

#[test]
fn ports_are_seen_under_either_name_when_they_appear() {
    let files = Files::new("{}", FRR);
    let config = files.read("", Some(&["lo", "eth0", "eth1"])).unwrap();
    let names = |config: &SwitchConfig| {
        let ports = config.files.as_ref().unwrap().switch.ports.iter();
        ports.map(|port| port.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&config), ["Ethernet0"]);
    let now = |all: &[&str]| {
        let all: Vec<String> = all.iter().map(|name| (*name).to_owned()).collect();
        config.files.as_ref().unwrap().for_interfaces(&all).map(Result::unwrap)
    };
    assert!(now(&["lo", "eth0", "Ethernet0"]).is_none(), "it only has its name now");
    assert_eq!(names(&now(&["lo", "eth0", "Ethernet0", "eth2"]).unwrap()), ["Ethernet0", "Ethernet4"]);
}

#[test]
fn the_kernel_is_wanted_as_the_files_say() {
    let files = Files::new(CONFIG_DB, FRR);
    let config = files.read("", None).unwrap();
    let files = config.files.unwrap();
    let switch = &files.switch;
    let wanted = files.wanted().unwrap();
    assert_eq!(wanted, Wanted::of(switch, false));
    let green = wanted.ports.iter().find(|port| port.name == "Ethernet8").unwrap();
    assert_eq!((green.wire.as_deref(), green.vrf.as_deref(), green.mac), (Some("eth3"), Some("Vrf-green"), None));
    assert!(wanted.ports.iter().any(|port| port.name == "Ethernet12" && !port.up), "admin_status is not written");
    let router = Wanted::of(switch, true).ports.iter().find_map(|port| port.mac);
    assert_eq!(router, switch.device.mac);
    let mut off = files.clone();
    off.sonic.kernel = Some(Spanned::new(0..0, false));
    assert_eq!(off.wanted(), None);
}
