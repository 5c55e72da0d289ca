//! "Did you mean": the known word nearest to what was written.

/// The candidate with the fewest edits away from `word`, when it is close enough to be what was meant.
pub(super) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word = normalized(word);
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (edits(&word, &normalized(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Ends a message with the nearest candidate, or failing that with all of them.
pub(super) fn mend<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str> + Clone) -> String {
    match nearest(word, candidates.clone()) {
        Some(candidate) => format!("did you mean \"{candidate}\"?"),
        None => {
            let all: Vec<_> = candidates.into_iter().map(|candidate| format!("\"{candidate}\"")).collect();
            format!("known are {}", all.join(", "))
        }
    }
}

fn normalized(word: &str) -> String {
    word.to_lowercase().replace(['-', ' '], "_")
}

/// Levenshtein distance, one row at a time.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (index, a) in from.chars().enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        let mut next = vec![left];
        for (b, above) in to.chars().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(a != b)).min(left + 1).min(above + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}
