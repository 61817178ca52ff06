//! Reader of server-sent events (WHATWG HTML, section 9.2). Only the fact that there was an event matters, because the
//! change itself is read through another route. So the reader keeps nothing of the stream, however long its lines are.

/// Byte order mark, which may precede the first line.
const MARK: &[u8] = "\u{feff}".as_bytes();
/// Number of bytes that identify the field of a line: a byte order mark and `data:`.
const BEGIN: usize = 8;

/// Finds the ends of events in the bytes of a stream.
#[derive(Debug, Default)]
pub struct EventReader {
    /// Beginning of the current line, at most [`BEGIN`] bytes.
    line: Vec<u8>,
    /// Whether the first line of the stream has ended.
    is_begun: bool,
    /// Whether the last byte was a carriage return. A line feed after it belongs to the same line end.
    is_behind_return: bool,
    /// Whether the current event has a `data` field. Without one it does not count as an event.
    has_data: bool,
}

impl EventReader {
    /// Reads the next bytes of the stream, and returns how many events end in them.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        bytes.iter().filter(|byte| self.ends_event(**byte)).count()
    }

    fn ends_event(&mut self, byte: u8) -> bool {
        let is_same_end = byte == b'\n' && self.is_behind_return;
        self.is_behind_return = byte == b'\r';
        match byte {
            _ if is_same_end => false,
            b'\r' | b'\n' => self.end_line(),
            _ => {
                if self.line.len() < BEGIN {
                    self.line.push(byte);
                }
                false
            }
        }
    }

    fn end_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let line = line.strip_prefix(MARK).filter(|_| is_first).unwrap_or(&line);
        if line.is_empty() {
            return std::mem::take(&mut self.has_data);
        }
        self.has_data |= line == b"data" || line.starts_with(b"data:");
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of events in a stream, which does not depend on how the stream is split into pieces.
    fn events(stream: &[u8]) -> usize {
        let whole = EventReader::default().take(stream);
        for piece in 1..=3 {
            let mut reader = EventReader::default();
            assert_eq!(stream.chunks(piece).map(|bytes| reader.take(bytes)).sum::<usize>(), whole, "{piece} at a time");
        }
        whole
    }

    #[test]
    fn an_event_ends_with_an_empty_line() {
        assert_eq!(events(b"data: a\n\nevent: x\ndata: b\ndata: c\n\n"), 2);
        assert_eq!(events(b"data: a\r\n\r\ndata: b\r\rdata\n\n"), 3);
        assert_eq!(events(b"data: a\n"), 0, "it has not ended");
    }

    #[test]
    fn comments_and_events_without_data_are_none() {
        assert_eq!(events(b":\n\n: keep-alive\n\nid: 1\n\nretry: 5\n\ndatabase: x\n\n\n\n"), 0);
    }

    #[test]
    fn a_byte_order_mark_stands_in_front_of_the_first_line_only() {
        assert_eq!(events("\u{feff}data: a\n\n".as_bytes()), 1);
        assert_eq!(events("\u{feff}\n\n".as_bytes()), 0);
        assert_eq!(events("data: a\n\n\u{feff}data: b\n\n".as_bytes()), 1);
    }

    #[test]
    fn a_line_without_end_takes_no_room() {
        let mut reader = EventReader::default();
        reader.take(b"data: ");
        for _ in 0..1000 {
            assert_eq!(reader.take(&[0xff; 1000]), 0);
        }
        assert!(reader.line.capacity() <= 2 * BEGIN, "{} bytes are kept", reader.line.capacity());
        assert_eq!(reader.take(b"\n\n"), 1);
    }
}
