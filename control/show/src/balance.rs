//! `srv6d show balance`.

use srv6d_api::state::BalanceRow;

use super::Table;

/// Formats the members of groups that choose by a policy.
pub(super) fn render(rows: &[BalanceRow]) -> String {
    let mut table = Table::new(&[
        "GROUP",
        "POLICY",
        "MODE",
        "MEMBER",
        ">WEIGHT",
        ">BAND",
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
            row.band.map_or_else(|| "-".to_owned(), |band| band.to_string()),
            row.score.map_or_else(|| "-".to_owned(), busy),
            row.packets.to_string(),
            row.flowlets.to_string(),
            row.moves.values().sum::<u64>().to_string(),
            reasons.join(", "),
        ]);
    }
    table.finish("every group chooses by the hash; see [[balance]]")
}
