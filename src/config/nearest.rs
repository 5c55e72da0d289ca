//! "Did you mean": the known word nearest to what was written.

/// Nobody means one of our words by a longer one, and comparing takes the square of its length.
const WORD_BYTES_MAX: usize = 128;

/// The candidate with the fewest edits away from `word`, when it is close enough to be what was meant.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
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
    if let Some(candidate) = nearest(word, candidates.clone()) {
        return format!("did you mean \"{candidate}\"?");
    }
    let all: Vec<_> = candidates.into_iter().map(|candidate| format!("\"{candidate}\"")).collect();
    format!("known are {}", all.join(", "))
}

fn normalized(word: &str) -> String {
    word.to_lowercase().replace(['-', ' '], "_")
}

/// How many letters to add, remove, change or swap with their neighbour.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    let mut last = None;
    for (index, a) in from.chars().enumerate() {
        let mut next = vec![index + 1];
        for (column, b) in to.iter().enumerate() {
            let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
            let mut cost = at(&row, column) + usize::from(a != *b);
            cost = cost.min(at(&row, column + 1) + 1).min(at(&next, column) + 1);
            let swapped = column.checked_sub(1).filter(|left| to.get(*left) == Some(&a) && last == Some(*b));
            if let Some(left) = swapped {
                cost = cost.min(at(&before, left) + 1);
            }
            next.push(cost);
        }
        before = std::mem::replace(&mut row, next);
        last = Some(a);
    }
    row.last().copied().unwrap_or(0)
}
