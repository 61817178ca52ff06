//! Writes the seeds of every fuzz target to `DIRECTORY/TARGET/`: frames and configurations of the conformance pack.

use std::path::PathBuf;
use std::{env, fs, io};

use srv6d_differential::fuzz::TARGETS;

fn main() -> io::Result<()> {
    let Some(corpus) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds DIRECTORY, e.g. seeds tests/fuzz/corpus");
        std::process::exit(2);
    };
    for target in TARGETS {
        let directory = corpus.join(target.name);
        fs::create_dir_all(&directory)?;
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(directory.join(format!("pack-{number:04}")), seed)?;
        }
        println!("{}: {} seeds", directory.display(), seeds.len());
    }
    Ok(())
}
