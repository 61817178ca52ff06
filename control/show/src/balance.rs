//! `srv6d show balance`.

use srv6d_api::state::MemberStatus;

use super::Table;

/// Formats the members of groups that choose by a policy.
pub(super) fn render(rows: &[MemberStatus]) -> String {
    let mut table = Table::new(&[
        "GROUP",
        "POLICY",
        "MODE",
        "MEMBER",
        ">WEIGHT",
        ">CAPACITY",
        "WEIGHTS FROM",
        ">BAND OWN/FAR/USED",
        ">BUSY",
        ">PACKETS",
        ">FLOWLETS",
        ">MOVES",
        "BY REASON",
    ]);
    for row in rows {
        let more = if row.more > 0 { format!(" and {} more", row.more) } else { String::new() };
        let busy = |score: u16| format!("{}.{} %", score / 10, score % 10);
        let reasons = row.moves.iter().filter(|(_, moves)| **moves > 0);
        let reasons: Vec<String> = reasons.map(|(reason, moves)| format!("{reason} {moves}")).collect();
        table.row([
            format!("{}{more}", row.group),
            row.policy.clone(),
            row.mode.clone(),
            row.member.clone(),
            row.weight.to_string(),
            row.capacity.map_or_else(|| "-".to_owned(), bit_rate),
            row.weights_from.clone().unwrap_or_else(|| "-".to_owned()),
            bands(row),
            row.score.map_or_else(|| "-".to_owned(), busy),
            row.packets.to_string(),
            row.flowlets.to_string(),
            row.moves.values().sum::<u64>().to_string(),
            reasons.join(", "),
        ]);
    }
    table.finish("every group chooses by the hash; see [[balance]]")
}

/// Formats the bands of a member. Only policies of mode "global" look at far ones.
fn bands(row: &MemberStatus) -> String {
    let shown = |band: Option<u8>| band.map_or_else(|| "-".to_owned(), |band| band.to_string());
    match row.mode.as_str() {
        "global" => [row.band, row.far_band, row.used_band].map(shown).join("/"),
        _ => shown(row.band),
    }
}

/// Formats a bit rate: `25 Gbit`, `97.5 Mbit`.
pub(super) fn bit_rate(rate: u64) -> String {
    const TENTH_OF_MEGABIT: u64 = 100_000;
    let tenths = rate / TENTH_OF_MEGABIT;
    let (tenths, unit) = if tenths >= 10_000 { (tenths / 1000, "Gbit") } else { (tenths, "Mbit") };
    let part = if tenths % 10 == 0 { String::new() } else { format!(".{}", tenths % 10) };
    format!("{}{part} {unit}", tenths / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_rates_are_short() {
        let shown = [97_500_000, 100_000_000, 1_000_000_000, 2_500_000_000, 1_600_000_000_000].map(bit_rate);
        assert_eq!(shown, ["97.5 Mbit", "100 Mbit", "1 Gbit", "2.5 Gbit", "1600 Gbit"]);
    }
}
