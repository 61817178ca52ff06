//! TCP requests and responses of one byte, one after the other, and how long each takes.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::netns::Namespace;

const SERVER: &str = "[2001:db8:f::1]:5300";

/// Returns the median and the 99th percentile in seconds.
pub(super) fn measure(host: &Namespace, far: &Namespace, seconds: u16) -> Result<[f64; 2], BenchError> {
    let error = |why| BenchError::of(SERVER, why);
    let listener = srv6d_netns::enter(far, || TcpListener::bind(SERVER).map_err(error))?;
    let answers = std::thread::spawn(move || answer(&listener));
    let mut stream = srv6d_netns::enter(host, || TcpStream::connect(SERVER).map_err(error))?;
    let measured = ask(&mut stream, Duration::from_secs(seconds.into())).map_err(error);
    drop(stream);
    let _ = answers.join();
    percentiles(measured?).ok_or_else(|| BenchError(format!("{SERVER}: no response")))
}

fn answer(listener: &TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    while stream.read(&mut byte)? > 0 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

fn ask(stream: &mut TcpStream, time: Duration) -> std::io::Result<Vec<f64>> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (began, mut taken, mut byte) = (Instant::now(), Vec::new(), [0]);
    while began.elapsed() < time {
        let sent = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        taken.push(sent.elapsed().as_secs_f64());
    }
    Ok(taken)
}

fn percentiles(mut taken: Vec<f64>) -> Option<[f64; 2]> {
    taken.sort_by(f64::total_cmp);
    let at = |hundredths: usize| taken.get(taken.len() * hundredths / 100).copied();
    Some([at(50)?, at(99)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_takes_longer_than_the_99th_percentile() {
        let taken = (0..1000).rev().map(f64::from).collect();
        assert_eq!(percentiles(taken), Some([500.0, 990.0]));
        assert_eq!(percentiles(Vec::new()), None);
    }
}
