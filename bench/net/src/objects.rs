//! The compiled BPF programs, and their maps.

use aya::maps::{MapData, PerCpuArray};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode, tc};
use aya::{Ebpf, EbpfLoader};

use crate::BenchError;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/traffic.o"));

/// Maximum number of latency samples that the sink stores.
pub const SAMPLES: u32 = 1 << 17;

/// Loads a separate copy of all programs and maps, with room for this number of latency samples.
pub fn load(samples: u32) -> Result<Ebpf, BenchError> {
    EbpfLoader::new()
        .map_max_entries("samples", samples)
        .load(OBJECT)
        .map_err(|why| failed("read the BPF object", &why))
}

/// Loads a program into the kernel.
pub fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, BenchError> {
    let program: Option<&mut Xdp> = ebpf.program_mut(name).and_then(|program| program.try_into().ok());
    let program = program.ok_or_else(|| BenchError(format!("the BPF object has no program {name}")))?;
    program.load().map_err(|why| failed(&format!("load the BPF program {name}"), &why))?;
    Ok(program)
}

/// Loads a program and attaches it to a device in the calling thread's namespace.
pub fn attach(ebpf: &mut Ebpf, name: &str, device: &str) -> Result<(), BenchError> {
    let done: Result<_, ProgramError> = program(ebpf, name)?.attach(device, XdpMode::Driver);
    done.map(drop).map_err(|why| failed(&format!("attach {name} to {device}"), &why))
}

/// Loads a program and attaches it behind the receive path of a device in the calling thread's namespace.
pub fn attach_behind(ebpf: &mut Ebpf, name: &str, device: &str) -> Result<(), BenchError> {
    let program: Option<&mut SchedClassifier> = ebpf.program_mut(name).and_then(|program| program.try_into().ok());
    let program = program.ok_or_else(|| BenchError(format!("the BPF object has no program {name}")))?;
    program.load().map_err(|why| failed(&format!("load the BPF program {name}"), &why))?;
    // Only kernels before 6.6 need this. If it fails there, the next line reports what is missing.
    let _ = tc::qdisc_add_clsact(device);
    let done = program.attach(device, TcAttachType::Ingress);
    done.map(drop).map_err(|why| failed(&format!("attach {name} to {device}"), &why))
}

/// Opens a map that the programs use.
pub fn map<T>(ebpf: &mut Ebpf, name: &str) -> Result<T, BenchError>
where
    T: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let map = ebpf.take_map(name).ok_or_else(|| BenchError(format!("the BPF object has no map {name}")))?;
    map.try_into().map_err(|why| failed(&format!("open the BPF map {name}"), &why))
}

/// Returns the sum over all cores of each word of a per-core value.
pub fn sum<const WORDS: usize>(map: &PerCpuArray<MapData, [u64; WORDS]>) -> Result<[u64; WORDS], BenchError> {
    let cores = map.get(&0, 0).map_err(|why| failed("read a BPF map", &why))?;
    let mut total = [0; WORDS];
    for words in cores.iter() {
        for (sum, word) in total.iter_mut().zip(words) {
            *sum += word;
        }
    }
    Ok(total)
}

/// Makes an error that contains all its causes.
pub fn failed(what: &str, why: &dyn std::error::Error) -> BenchError {
    let mut said = format!("{what}: {why}");
    let mut cause = why.source();
    while let Some(deeper) = cause {
        let deeper_says = deeper.to_string();
        if !said.contains(&deeper_says) {
            said = format!("{said}: {deeper_says}");
        }
        cause = deeper.source();
    }
    BenchError(said)
}
