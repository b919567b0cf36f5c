//! A large body for the client, in parts: each has `client_write` to itself, so that a client that
//! reads slowly is told from one that does not read.

use bytes::Bytes;
use pingora::protocols::http::HttpTask;

/// At 60 s a part, a client that reads 4 KiB a second is still waited for.
const PART_MAX: usize = 256 << 10;

/// Whether a task is one part.
pub(super) fn fits(task: &HttpTask) -> bool {
    !matches!(task, HttpTask::Body(Some(body), _) if body.len() > PART_MAX)
}

/// The parts of a task, in order; the last one has its end.
pub(super) fn parts(task: HttpTask) -> impl Iterator<Item = HttpTask> {
    let (mut whole, mut left, end) = match task {
        HttpTask::Body(Some(body), end) if body.len() > PART_MAX => (None, body, end),
        other => (Some(other), Bytes::new(), false),
    };
    std::iter::from_fn(move || {
        if let Some(task) = whole.take() {
            return Some(task);
        }
        if left.is_empty() {
            return None;
        }
        let part = left.split_to(left.len().min(PART_MAX));
        Some(HttpTask::Body(Some(part), end && left.is_empty()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_body_and_only_the_last_one_ends_it() {
        for len in [0, 1, PART_MAX, PART_MAX + 1, 3 * PART_MAX, 3 * PART_MAX + 5] {
            let body: Bytes = (0..len).map(|i| (i % 251) as u8).collect();
            let task = HttpTask::Body(Some(body.clone()), true);
            assert_eq!(fits(&task), len <= PART_MAX);
            let (mut all, mut ends) = (Vec::new(), Vec::new());
            for part in parts(task) {
                let HttpTask::Body(Some(part), end) = part else { panic!("no body") };
                assert!(part.len() <= PART_MAX);
                all.extend_from_slice(&part);
                ends.push(end);
            }
            assert!(all == body, "{len}");
            assert_eq!(ends.pop(), Some(true));
            assert!(!ends.contains(&true));
        }
        assert_eq!(parts(HttpTask::Done).count(), 1);
    }
}
