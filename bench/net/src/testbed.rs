//! Three namespaces and the two veth pairs between them.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::frames::{GENERATOR_MAC, IN_MAC, OUT_MAC, SINK_MAC, Size};
use crate::generator::Generator;
use crate::layout::{Layout, Receive};
use crate::netns::{Namespace, run, tool};
use crate::sink::{Sink, SinkKind};
use crate::{BenchError, affinity};

/// How often the timer of deferred NAPI looks for frames, in nanoseconds. A ring of a veth holds 256, so this bounds the
/// rate at 1.28 million per second; a timer costs a virtual machine several microseconds.
const DEFERRED: u32 = 200_000;

/// Length of the MTU on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mtu {
    /// 1500 in, with room for encapsulation behind the DUT.
    Standard,
    /// 9000 in, with room for encapsulation behind the DUT.
    Jumbo,
}

impl Mtu {
    /// The one that frames of this size need.
    pub fn of(size: Size) -> Self {
        match size {
            Size::Bytes(bytes) if bytes > 1514 => Self::Jumbo,
            _ => Self::Standard,
        }
    }

    fn ports(self) -> (u32, u32) {
        match self {
            Self::Standard => (1500, 2000),
            Self::Jumbo => (9000, 9500),
        }
    }
}

/// The way of the test traffic, gone when this is dropped.
pub struct Testbed {
    /// Declared first: programs leave the devices before the namespaces go.
    pub generator: Generator,
    /// The sink.
    pub sink: Sink,
    /// Where the generator is.
    pub generator_space: Namespace,
    /// Where the DUT is.
    pub dut_space: Namespace,
    sink_space: Namespace,
    /// Names of the devices.
    pub devices: Devices,
    /// Receive queues of the DUT's ports.
    pub queues: usize,
}

/// The four ends of the two veth pairs. Unlike each other on the whole machine: kernel threads are found by them.
#[derive(Debug, Clone)]
pub struct Devices {
    /// The generator's.
    pub generator: String,
    /// The DUT's towards the generator.
    pub ingress: String,
    /// The DUT's towards the sink.
    pub egress: String,
    /// The sink's.
    pub sink: String,
}

impl Testbed {
    /// Makes it all; nothing forwards yet.
    pub fn new(queues: usize, mtu: Mtu, kind: SinkKind) -> Result<Self, BenchError> {
        let tag = tag();
        let space = |role: &str| Namespace::create(&format!("srv6d-bn{}-{tag}-{role}", std::process::id()));
        let (generator_space, dut_space, sink_space) = (space("gen")?, space("dut")?, space("sink")?);
        for silent in [&generator_space, &sink_space] {
            silent.shell("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")?;
        }
        // No duplicate address detection, no router solicitations: nothing but test traffic.
        dut_space.shell(
            "cd /proc/sys/net/ipv6/conf; for which in default all; do \
             echo 0 > $which/accept_dad; echo 0 > $which/router_solicitations; done",
        )?;
        let [generator, ingress, egress, sink] = ["g", "i", "o", "s"].map(|role| format!("{role}{tag}"));
        let (mtu_in, mtu_out) = mtu.ports();
        let link = |left: (&str, &Namespace, [u8; 6]), right: (&str, &Namespace, [u8; 6]), mtu: u32| {
            run(&mut veth(left, right, mtu, queues))
        };
        link((&generator, &generator_space, GENERATOR_MAC), (&ingress, &dut_space, IN_MAC), mtu_in)?;
        link((&egress, &dut_space, OUT_MAC), (&sink, &sink_space, SINK_MAC), mtu_out)?;
        generator_space.shell(&format!("ip link set {generator} up"))?;
        sink_space.shell(&format!("ip link set {sink} up"))?;
        dut_space.shell(&format!("ip link set {ingress} up; ip link set {egress} up"))?;
        Ok(Self {
            generator: Generator::new(&generator_space, &generator)?,
            sink: Sink::new(&sink_space, &sink, kind)?,
            generator_space,
            dut_space,
            sink_space,
            devices: Devices { generator, ingress, egress, sink },
            queues,
        })
    }

    /// Puts the receive work where the layout wants it. The DUT runs already: receiving in NAPI begins with its program,
    /// and kernel threads with that.
    pub fn place(&mut self, layout: &Layout) -> Result<Vec<i32>, BenchError> {
        let ports = [
            (&self.dut_space, self.devices.ingress.clone(), layout.ingress),
            (&self.sink_space, self.devices.sink.clone(), layout.sink),
        ];
        let mut threads = Vec::new();
        for (space, device, receive) in ports {
            match receive {
                Receive::OnSender => {}
                Receive::Thread(core) => {
                    space.shell(&format!("echo 1 > /sys/class/net/{device}/threaded"))?;
                    let found = affinity::napi_threads(&device);
                    if found.is_empty() {
                        return Err(BenchError(format!("{device} has no receiving kernel thread (threaded NAPI)")));
                    }
                    found.iter().try_for_each(|&thread| affinity::pin(thread, core))?;
                    threads.extend(found);
                }
                // Never counted down: once polled on a core, the timer of that core polls on.
                Receive::Deferred(_) => drop(space.shell(&format!(
                    "cd /sys/class/net/{device}; echo 100000000 > napi_defer_hard_irqs; \
                     echo {DEFERRED} > gro_flush_timeout"
                ))?),
            }
        }
        Ok(threads)
    }

    /// Frames that the sink's ring had no room for, whether the kernel sent them one by one or redirected them: the veth's
    /// drops are both. (What `ethtool -S` counts as errors of `xdp_xmit` is among them.)
    pub fn lost_at_sink(&self) -> Result<u64, BenchError> {
        let file = format!("/sys/class/net/{}/statistics/tx_dropped", self.devices.egress);
        let said = self.dut_space.shell(&format!("cat {file}"))?;
        said.trim().parse().map_err(|why| BenchError::of(file, why))
    }
}

fn veth(
    (left, left_space, left_mac): (&str, &Namespace, [u8; 6]),
    (right, right_space, right_mac): (&str, &Namespace, [u8; 6]),
    mtu: u32,
    queues: usize,
) -> std::process::Command {
    let mut command = tool("ip");
    let end = |device: &str, space: &Namespace, address: [u8; 6]| {
        format!(
            "{device} netns {} address {} mtu {mtu} numrxqueues {queues} numtxqueues {queues}",
            space.name(),
            mac(address)
        )
    };
    let line = format!(
        "link add {} type veth peer name {}",
        end(left, left_space, left_mac),
        end(right, right_space, right_mac)
    );
    command.args(line.split_whitespace());
    command
}

/// As iproute2 writes it.
pub fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// The kernel's number of a device in the calling thread's namespace.
pub fn ifindex(device: &str) -> Result<u32, BenchError> {
    nix::net::if_::if_nametoindex(device).map_err(|why| BenchError::of(format!("find the device {device}"), why))
}

/// Four characters that no other testbed on this machine has: process names of kernel threads are cut off at 15.
fn tag() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id().wrapping_mul(64) + NEXT.fetch_add(1, Ordering::Relaxed) % 64;
    let digit = |place: u32| char::from_digit(number / 36_u32.pow(place) % 36, 36).unwrap_or('0');
    (0..4).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_differ() {
        let (a, b) = (tag(), tag());
        assert_ne!(a, b);
        assert_eq!((a.len(), b.len()), (4, 4));
    }
}
