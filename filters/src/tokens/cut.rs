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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Encoding;
    use proptest::prelude::*;

    /// Characters that tokenisers treat specially beside each other.
    const ODD: &[&str] = &[
        "a",
        "B",
        "é",
        "Я",
        "ж",
        "的",
        "あ",
        "ア",
        "한",
        "ſ",
        "K",
        "Ⅷ",
        "Ⓐ",
        "٣",
        "५",
        "1",
        "23",
        "²",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\u{3000}",
        "\u{a0}",
        "'",
        "'s",
        "'LL",
        "’",
        ".",
        ",",
        "(",
        "/",
        "//",
        "_",
        "!",
        "。",
        "，",
        "：",
        "「",
        "】",
        "（",
        "\u{301}",
        "\u{200d}",
        "😀",
        "🏽",
        "ी",
        "ไทย",
        "مرحبا",
        "ǅ",
        "ʰ",
        "+",
        "$",
        "~",
        "^",
        "`",
        "<|endoftext|>",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn the_parts_of_a_safe_cut_count_as_the_whole(
            parts in prop::collection::vec(prop::sample::select(ODD), 2..24)
        ) {
            let text = parts.concat();
            for encoding in [Encoding::O200k, Encoding::Cl100k] {
                let whole = encoding.tokens(&text);
                let mut end = text.len();
                while let Some(at) = last_safe(&text, 0, end) {
                    let sum = encoding.tokens(&text[..at]) + encoding.tokens(&text[at..]);
                    prop_assert_eq!(sum, whole, "{:?} at {}", text, at);
                    end = floor(&text, at - 1);
                }
            }
        }
    }

    #[test]
    fn a_cut_stands_where_both_neighbours_are_known() {
        assert_eq!(last_safe("ab cd", 0, 5), Some(2));
        assert_eq!(last_safe("ab cd", 2, 5), None);
        assert_eq!(last_safe("ab ", 0, 3), Some(2));
        assert_eq!(last_safe("ab", 0, 2), None, "what follows is not known");
        assert_eq!(last_safe("ab", 0, 1), None);
        assert_eq!(last_safe("你好。", 0, 9), Some(6));
        assert_eq!(last_safe("don't", 0, 5), None);
        assert_eq!(last_safe("", 0, 0), None);
    }
}
