//! The table `[sonic]` of srv6d.toml.

use std::path::PathBuf;

use srv6d_config::{ForeignTable, Optional, Record, Table};

/// `[sonic]`: behaves as the SONiC switch of these files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sonic {
    /// CONFIG_DB as JSON.
    pub config_db: Optional<PathBuf>,
    /// FRR's configuration.
    pub frr: Optional<PathBuf>,
    /// Whether everything is refused that SONiC's own models and daemons refuse, default false.
    pub strict: Optional<bool>,
    /// The uN SIDs that decapsulate packets which end there, default `always`.
    pub usd: Optional<SwitchUsd>,
    /// Whether the kernel's interfaces, addresses and routes are adapted, default true.
    pub kernel: Optional<bool>,
    /// Ethernet address of the ports, default `port`.
    pub mac: Optional<RouterMac>,
}

srv6d_config::keywords! {
    /// The uN SIDs of a switch that decapsulate packets which end there.
    SwitchUsd {
        /// All uN SIDs.
        Always = "always",
        /// The uN SIDs with a `decap_dscp_mode` in CONFIG_DB, as in SONiC.
        Configured = "configured",
    }
}

srv6d_config::keywords! {
    /// The Ethernet address that the ports of a switch have.
    RouterMac {
        /// Each interface has its own address. The `mac_addr` of an `INTERFACE` row has precedence.
        Port = "port",
        /// All ports have the address of `DEVICE_METADATA`.
        Switch = "switch",
    }
}

impl Record for Sonic {
    const HEADER: &'static str = "[sonic]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            config_db: table.optional("config_db"),
            frr: table.optional("frr"),
            strict: table.optional("strict"),
            usd: table.optional("usd"),
            kernel: table.optional("kernel"),
            mac: table.optional("mac"),
        })
    }
}

impl ForeignTable for Sonic {
    const KEY: &'static str = "sonic";
}
