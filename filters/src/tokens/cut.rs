//! Safe cuts: places in a text that no pre-token of the known vocabularies spans.
//!
//! Their pre-tokenisers (the patterns of o200k_base and cl100k_base) take a blank only as a token's
//! first character or as a part of white space, and end a run of letters at every digit and
//! punctuation mark but the apostrophe. So a text may be cut (a) before a blank that follows
//! something visible, and (b) between a letter and an ASCII digit, an ASCII mark or a CJK mark.

/// Where the last safe cut lies: at most at `end`, after `start`; both are byte offsets at
/// character boundaries of `text`. The character after the cut must be there to be seen.
pub(super) fn last_safe(text: &str, start: usize, end: usize) -> Option<usize> {
    let mut next = text[end..].chars().next();
    for (at, char) in text[start..end].char_indices().rev() {
        let after = start + at + char.len_utf8();
        if next.is_some_and(|next| safe(char, next)) {
            return Some(after);
        }
        next = Some(char);
    }
    None
}

/// The last character boundary at or before `at`.
pub(super) fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at)
}

fn safe(before: char, next: char) -> bool {
    match next {
        ' ' => !before.is_whitespace(),
        '\'' => false,
        '0'..='9' | '!'..='/' | ':'..='@' | '['..='`' | '{'..='~' => letter(before),
        '、'..='〃' | '〈'..='】' | '！' | '，' | '：' | '；' | '？' | '（' | '）' => {
            letter(before)
        }
        _ => false,
    }
}

/// Surely of class L in every Unicode version, and of no odd case folding. Others (marks, letter
/// numbers, circled letters) join with what follows in one pattern or another.
fn letter(char: char) -> bool {
    matches!(char,
        'a'..='z' | 'A'..='Z' | 'À'..='Ö' | 'Ø'..='ö' | 'ø'..='ÿ' // Latin
        | 'А'..='я' // Cyrillic
        | 'ぁ'..='ゖ' | 'ァ'..='ヺ' // kana
        | '㐀'..='䶿' | '一'..='鿿' // Han
        | '가'..='힣') // Hangul
}
