//! Which base URL may have been meant. Pure.

/// The base URLs that are most often meant: with `/v1`, without it, without its double, with `/api/v1`.
pub(super) fn candidates(base_url: &str) -> Vec<String> {
    let base = base_url.trim_end_matches('/');
    let origin_end = base.find("://").map_or(0, |at| at + 3);
    let origin = match base.get(origin_end..).and_then(|rest| rest.find('/')) {
        Some(path) => base.get(..origin_end + path).unwrap_or(base),
        None => base,
    };
    let mut found = vec![format!("{base}/v1")];
    found.extend(base.strip_suffix("/v1").map(str::to_owned));
    found.extend([format!("{origin}/v1"), format!("{origin}/api/v1"), origin.to_owned()]);
    let mut seen = std::collections::HashSet::from([base.to_owned()]);
    found.retain(|candidate| seen.insert(candidate.clone()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_base_urls_are_tried() {
        assert_eq!(candidates("https://h:8000"), ["https://h:8000/v1", "https://h:8000/api/v1"]);
        assert_eq!(
            candidates("https://h/v1/v1/"),
            ["https://h/v1/v1/v1", "https://h/v1", "https://h/api/v1", "https://h"]
        );
        assert_eq!(candidates("http://h/v1"), ["http://h/v1/v1", "http://h", "http://h/api/v1"]);
    }
}
