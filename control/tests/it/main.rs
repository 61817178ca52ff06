//! The tests of the daemon, its command line and its labs, in one program so that it is linked only once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
#[path = "../../fpm/tests/it/made/mod.rs"]
mod made;
#[path = "../../kernel-routes/tests/it/support/netlink.rs"]
mod netlink;

mod clab;
mod cli_path_server;
mod cli_place;
mod cli_show;
mod cli_sonic;
mod cli_usage;
mod config_docs;
mod config_errors;
mod config_fuzz;
mod config_plan;
mod config_scale;
mod confine;
mod container_engine;
mod containerlab;
mod daemon_end;
mod daemon_foreign;
mod daemon_hostile;
mod daemon_jumbo;
mod daemon_limits;
mod daemon_memories;
mod daemon_modes;
mod daemon_neighbors;
mod daemon_node;
mod daemon_offload;
mod daemon_path_mtu;
mod daemon_ports;
mod daemon_reload;
mod daemon_sources;
mod daemon_systemd;
mod daemon_unprivileged;
mod daemon_vlan;
mod fpm_frr;
mod fpm_hostile;
mod fpm_plan;
mod fpm_sonic;
mod hostile_sources;
mod kernel_figures;
mod kernel_mirror;
mod kernel_plan;
mod kernel_routes;
mod lab_bgp;
mod lab_controller;
mod lab_fabric;
mod lab_fpm;
mod lab_moves;
mod lab_scale;
mod lab_topology;
mod lab_traffic;
mod links;
mod metrics;
mod operations;
mod perimeter;
mod rooms;
mod sonic_commands;
mod sonic_leaf;
mod sonic_packets;
mod sonic_table;
mod source_failures;
mod support;
mod tutorials;
