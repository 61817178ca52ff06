//! IPv6 options: RFC 8200 section 4.2. Padding is the only kind of option that is known.

use etherparse::IpNumber;
use srv6d_srv6::DropReason;

use crate::forward::End;
use crate::icmp::Message;
use crate::packet::{Chain, Malformed};

/// Processes the options in front of all other headers, which are meant for every node that the packet visits (RFC 8200
/// section 4.1). A SID that shifts looks at no other header behind the IPv6 header.
pub(crate) fn process_options_in_front(chain: &Chain) -> Result<(), End> {
    let is_option = |number| matches!(number, IpNumber::IPV6_HEADER_HOP_BY_HOP | IpNumber::IPV6_DESTINATION_OPTIONS);
    let options = chain.extensions.iter().take_while(|header| is_option(header.number));
    let all_options = options.clone().count() == chain.extensions.len();
    for header in options {
        process_options(&header.bytes, header.at)?;
    }
    if all_options && chain.broken && is_option(chain.upper) { Err(Malformed.into()) } else { Ok(()) }
}

/// Processes the options of a header. For an unknown option, the upper two bits of its type say what to do.
pub(crate) fn process_options(header: &[u8], at: usize) -> Result<(), End> {
    const PAD1: u8 = 0;
    const PADN: u8 = 1;
    let mut offset = 2;
    while let Some(&kind) = header.get(offset) {
        if kind == PAD1 {
            offset += 1;
            continue;
        }
        let len = header.get(offset + 1).copied().ok_or(Malformed)?;
        let end = offset + 2 + usize::from(len);
        if end > header.len() {
            return Err(Malformed.into());
        }
        match kind >> 6 {
            _ if kind == PADN => {}
            0b00 => {}
            0b01 => return Err(End::Drop(DropReason::OptionDiscard)),
            _ => return Err(End::Tell(DropReason::OptionUnknown, Message::UnknownOption(at + offset))),
        }
        offset = end;
    }
    Ok(())
}
