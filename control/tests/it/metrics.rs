//! Tests of the metrics for Prometheus, and of their HTTP server.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops at the first surprise")]

use crate::support::recorded;

use srv6d_api::state::{FpmView, SourceView};
use srv6d_daemon::metrics::{Scrape, exposition, listen, serve};
use tokio::sync::mpsc;

#[test]
fn names_labels_and_values() {
    let text = exposition(recorded::state(Vec::new())).unwrap();
    for line in [
        "srv6d_received_packets_total 22",
        "srv6d_sent_packets_total 15",
        "srv6d_kernel_packets_total 1",
        "srv6d_local_lost_packets_total 7",
        "srv6d_ecn_unused_packets_total 5",
        "srv6d_reply_packets_total{reason=\"echo\"} 1",
        "srv6d_drop_packets_total{reason=\"no_neigh\"} 3",
        "srv6d_held_packets 2",
        "srv6d_queued_packets 0",
        "srv6d_worker_rounds_total{worker=\"0\"} 9000000",
        "srv6d_worker_late_rounds_total{worker=\"0\"} 3",
        "srv6d_worker_received_packets_total{worker=\"1\"} 0",
        "srv6d_worker_busy_seconds_total{worker=\"0\"} 0.382",
        "srv6d_worker_asleep_seconds_total{worker=\"1\"} 0.999",
        "srv6d_worker_stage_seconds_total{worker=\"0\",stage=\"receive\"} 0.0000852",
        "srv6d_worker_timed_packets_total{worker=\"0\"} 1200",
        "srv6d_port_received_packets_total{port=\"eth1\",device=\"eth1\"} 2",
        "srv6d_port_sent_bytes_total{port=\"eth1\",device=\"eth1\"} 2400",
        "srv6d_port_up{port=\"eth3\"} 0",
        "srv6d_sid_packets_total{sid=\"fcbb:0:1004::/48\",behavior=\"uN\"} 0",
        "srv6d_path_bytes_total{path=\"spine01\",prefix=\"2001:db8:b::/48\"} 1440",
        "srv6d_generation 2",
        "srv6d_tables_compiled_total{cause=\"generation\"} 5",
        "srv6d_tables_compiled_total{cause=\"amendment\"} 1",
        "srv6d_tables_amended_total{copy=\"standby\"} 10",
        "srv6d_tables_amended_total{copy=\"fresh\"} 2",
        "srv6d_unresolved_next_hops 1",
        "srv6d_sid_up{sid=\"fcbb:0:1004::/48\",behavior=\"uN\"} 1",
        "srv6d_build_info{version=\"0.1.0\",node=\"leaf00\"} 1",
        "srv6d_start_time_seconds 1795231158",
        "srv6d_pending_entries 1",
        "srv6d_reload_refused 0",
        "srv6d_rollback_held 0",
        "srv6d_glb_sent_total 4012",
        "srv6d_glb_received_total 7991",
        "srv6d_glb_rejected_total{reason=\"ttl\"} 2",
        "srv6d_glb_peer_age_seconds{node=\"10.0.0.12\"} 2.100345",
        "srv6d_glb_band{node=\"10.0.0.11\",neighbor=\"10.0.0.2\"} 0",
        "srv6d_probe_sent_total{path=\"host01-v6-spine00\"} 612",
        "srv6d_probe_lost_total{path=\"host01-v6-spine01\"} 205",
        "srv6d_probe_refused_total{reason=\"seal\"} 7",
        "srv6d_probe_late_total 2",
        "srv6d_probe_rtt_seconds{path=\"host01-v6-spine00\",quantile=\"0.5\"} 0.000184",
        "srv6d_path_dead{path=\"host01-v6-spine01\"} 1",
        "srv6d_path_left_out{path=\"host01-v6-spine00\"} 0",
        "srv6d_job_ranks{job_id=\"llm\"} 2",
        "srv6d_job_paths{job_id=\"llm\",state=\"in_force\"} 13",
        "srv6d_job_paths{job_id=\"llm\",state=\"waiting\"} 1",
        "srv6d_job_paths{job_id=\"llm\",state=\"refused\"} 0",
        "srv6d_job_stale{job_id=\"llm\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    assert!(!text.contains("neighbor=\"10.0.0.3\""), "labels are names of the configuration: {text}");
}

#[test]
fn fpm_has_metrics_of_its_own() {
    let fpm = FpmView {
        routes: 10,
        stale: 3,
        connections: 2,
        ignored: [("neighbours".to_owned(), 4)].into(),
        ..Default::default()
    };
    let view =
        SourceView { source: "fpm".to_owned(), state: "connected".to_owned(), fpm: Some(fpm), ..SourceView::default() };
    let text = exposition(recorded::state(vec![view])).unwrap();
    for line in [
        "srv6d_fpm_connected 1",
        "srv6d_fpm_routes 10",
        "srv6d_fpm_stale_routes 3",
        "srv6d_fpm_connections_total 2",
        "srv6d_fpm_ignored_total{kind=\"neighbours\"} 4",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("srv6d_source_"), "it is no path controller");
}

#[test]
fn one_sample_for_each_label_set() {
    let text = exposition(recorded::state(Vec::new())).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "{text}");
}

#[tokio::test]
async fn scrape_over_http_and_nothing_else() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut scrapes) = mpsc::channel::<Scrape>(1);
    let serving = tokio::spawn(serve(listener, sender));
    tokio::spawn(async move {
        while let Some(scrape) = scrapes.recv().await {
            drop(scrape.send(recorded::state(Vec::new())));
        }
    });
    for (request, status) in
        [("GET /metrics", "200 OK"), ("GET /", "404 Not Found"), ("POST /metrics", "404 Not Found")]
    {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream
            .write_all(format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
        assert_eq!(answer.contains("srv6d_received_packets_total 22"), status == "200 OK");
    }
    serving.abort();
}

#[test]
fn an_emulated_port_has_metrics_of_its_own() {
    let mut state = recorded::state(Vec::new());
    assert!(!exposition(state.clone()).unwrap().contains("srv6d_port_queue_bytes{"));
    state.counters.ports[0].emulated = Some(recorded::emulated());
    let text = exposition(state).unwrap();
    for line in [
        "srv6d_port_queue_bytes{port=\"eth1\"} 16200",
        "srv6d_port_load_ratio{port=\"eth1\"} 0.953",
        "srv6d_port_marked_packets_total{port=\"eth1\"} 41",
        "srv6d_port_queue_dropped_packets_total{port=\"eth1\",reason=\"queue_full\"} 3",
        "srv6d_port_queue_dropped_packets_total{port=\"eth1\",reason=\"wred\"} 1",
        "srv6d_port_late_seconds_bucket{le=\"0.000001024\",port=\"eth1\"} 5",
        "srv6d_port_late_seconds_bucket{le=\"0.000004096\",port=\"eth1\"} 12",
        "srv6d_port_late_seconds_bucket{le=\"1.073741824\",port=\"eth1\"} 12",
        "srv6d_port_late_seconds_bucket{le=\"+Inf\",port=\"eth1\"} 13",
        "srv6d_port_late_seconds_sum{port=\"eth1\"} 2.000021",
        "srv6d_port_late_seconds_count{port=\"eth1\"} 13",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}
