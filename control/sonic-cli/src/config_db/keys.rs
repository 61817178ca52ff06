//! Matches patterns of `KEYS`, as redis does.

/// Whether `key` matches `pattern`: `*` stands for any text, `?` for one character.
pub fn matches(pattern: &str, key: &str) -> bool {
    let (pattern, key): (Vec<char>, Vec<char>) = (pattern.chars().collect(), key.chars().collect());
    // `star` is the position of the last `*` and how much of the key it covers. It covers one more character if the
    // rest does not match.
    let (mut at, mut of_key, mut star) = (0, 0, None);
    while let Some(next) = key.get(of_key) {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, of_key));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || wanted == next => {
                at += 1;
                of_key += 1;
            }
            _ => {
                let Some((of_star, taken)) = star else { return false };
                star = Some((of_star, taken + 1));
                (at, of_key) = (of_star + 1, taken + 1);
            }
        }
    }
    pattern.iter().skip(at).all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_redis() {
        assert!(matches("*", "") && matches("*", "PORT|Ethernet0"));
        assert!(matches("SRV6_MY_SIDS*", "SRV6_MY_SIDS|loc1|fcbb:bbbb:1::/48"));
        assert!(matches("*|loc?|*1::/48", "SRV6_MY_SIDS|loc1|fcbb:bbbb:1::/48"));
        assert!(!matches("PORT|Ethernet", "PORT|Ethernet0") && !matches("a*b", "abc") && !matches("?", ""));
    }
}
