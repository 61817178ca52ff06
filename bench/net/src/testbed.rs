//! Creates three namespaces and the two veth pairs between them.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::frames::{GENERATOR_MAC, IN_MAC, OUT_MAC, SINK_MAC, Size};
use crate::generator::Generator;
use crate::layout::{Layout, Receive};
use crate::netns::{Namespace, run, tool};
use crate::sink::{Sink, SinkKind};
use crate::{BenchError, affinity};

/// Period in nanoseconds in which the timer of deferred NAPI looks for frames. The ring of a veth holds 256 frames, so
/// the rate is limited to 1.28 million per second; a shorter period would load a virtual machine, where each timer
/// costs several microseconds.
const DEFERRED: u32 = 200_000;

/// MTU of both sides of the DUT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mtu {
    /// 1500 at the first port, with room for encapsulation at the second.
    Standard,
    /// 9000 at the first port, with room for encapsulation at the second.
    Jumbo,
}

impl Mtu {
    /// Returns the MTU that frames of this size need.
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

/// Path of the test traffic; it is removed when this value is dropped.
pub struct Testbed {
    /// The generator. Declared first, so that programs are detached from devices before the namespaces are deleted.
    pub generator: Generator,
    /// The sink behind the DUT.
    pub sink: Sink,
    /// Namespace of the generator.
    pub generator_space: Namespace,
    /// Namespace of the DUT.
    pub dut_space: Namespace,
    sink_space: Namespace,
    /// Names of the devices.
    pub devices: Devices,
    /// Number of receive queues of the DUT's ports.
    pub queues: usize,
}

/// Names of the four ends of the two veth pairs. They are unique on the machine, because kernel threads are found by
/// them.
#[derive(Debug, Clone)]
pub struct Devices {
    /// Device of the generator.
    pub generator: String,
    /// Device of the DUT towards the generator.
    pub ingress: String,
    /// Device of the DUT towards the sink.
    pub egress: String,
    /// Device of the sink.
    pub sink: String,
}

impl Testbed {
    /// Creates namespaces and devices; nothing forwards yet.
    pub fn new(queues: usize, mtu: Mtu, kind: SinkKind) -> Result<Self, BenchError> {
        let tag = tag();
        let space = |role: &str| Namespace::create(&format!("srv6d-bn{}-{tag}-{role}", std::process::id()));
        let (generator_space, dut_space, sink_space) = (space("gen")?, space("dut")?, space("sink")?);
        for silent in [&generator_space, &sink_space] {
            silent.shell("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")?;
        }
        // Duplicate address detection and router solicitations are disabled, so that there is only test traffic.
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

    /// Moves the receive work to the cores of the layout. The DUT has to run already, because NAPI, and with it the
    /// kernel threads, starts with the DUT's program.
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
                // The counter is so high that it never runs out: once a core has polled, its timer continues to poll.
                Receive::Deferred(_) => drop(space.shell(&format!(
                    "cd /sys/class/net/{device}; echo 100000000 > napi_defer_hard_irqs; \
                     echo {DEFERRED} > gro_flush_timeout"
                ))?),
            }
        }
        Ok(threads)
    }

    /// Returns the number of frames that were lost because the sink's ring was full. The drops of the veth include
    /// frames that the kernel sent one by one and redirected frames. (They also include what `ethtool -S` counts as
    /// errors of `xdp_xmit`.)
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
            &**space,
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

/// Formats an Ethernet address as iproute2 does.
pub fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns the kernel index of a device in the calling thread's namespace.
pub fn ifindex(device: &str) -> Result<u32, BenchError> {
    nix::net::if_::if_nametoindex(device).map_err(|why| BenchError::of(format!("find the device {device}"), why))
}

/// Returns four characters that no other testbed on this machine has. They are few because names of kernel threads are
/// limited to 15.
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
