//! Events out of bytes: the grammar, and that no cut changes what is read.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)] // tests

mod replay;

use bytes::Bytes;
use proptest::prelude::*;
use weir_filters::sse::{Decoder, EVENT_BYTES_MAX, Event, Run, TooLong};

/// Every event of `pieces`, the end of the stream included.
fn read(pieces: &[&[u8]]) -> Vec<Event> {
    let (mut decoder, mut events) = (Decoder::new(), Vec::new());
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        while let Some(event) = decoder.next_event().unwrap() {
            events.push(event);
        }
    }
    events.extend(decoder.finish());
    events
}

fn data(pieces: &[&[u8]]) -> Vec<String> {
    let text = |e: &Event| e.data.as_ref().map(|d| String::from_utf8(d.to_vec()).unwrap());
    read(pieces).iter().filter_map(text).collect()
}

#[test]
fn lf_crlf_and_lone_cr_end_lines_s02_s03() {
    for body in
        ["data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r"]
    {
        assert_eq!(data(&[body.as_bytes()]), ["a", "b"], "{body:?}");
    }
}

#[test]
fn an_event_never_waits_for_the_lf_after_its_cr_s02() {
    let mut decoder = Decoder::new();
    decoder.push(Bytes::from_static(b"data: a\r\n\r"));
    assert_eq!(decoder.next_event().unwrap().unwrap().data.unwrap(), "a");
    decoder.push(Bytes::from_static(b"\ndata: b\r\n\r\n"));
    assert_eq!(decoder.next_event().unwrap().unwrap().data.unwrap(), "b");
    assert_eq!(decoder.next_event().unwrap(), None);
}

#[test]
fn the_space_after_the_colon_is_optional_and_only_one_is_taken_s04() {
    assert_eq!(data(&[b"data:a\n\ndata: b\n\ndata:  c\n\ndata\n\n"]), ["a", "b", " c", ""]);
}

#[test]
fn data_lines_are_joined_by_lf_s05() {
    assert_eq!(data(&[b"data: {\"a\":\ndata: 1}\n\n"]), ["{\"a\":\n1}"]);
}

#[test]
fn fields_may_stand_anywhere_in_the_event_s07() {
    let events = read(&[b"id: 7\ndata: x\nretry: 100\nevent: message\nx-foo: 1\n\n"]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].data.as_deref(), Some(b"x".as_slice()));
    assert_eq!(events[0].name.as_deref(), Some(b"message".as_slice()));
    assert!(!events[0].comment && events[0].plain().is_none());
}

#[test]
fn comments_are_no_data_s06() {
    let events = read(&[b": PROCESSING\n\n:\n\nretry: 1\n\n: a\ndata: x\n\n"]);
    let seen: Vec<_> = events.iter().map(|e| (e.comment, e.data.is_some())).collect();
    assert_eq!(seen, [(true, false), (true, false), (false, false), (false, true)]);
}

#[test]
fn a_byte_order_mark_is_skipped_at_the_start_only() {
    assert_eq!(data(&[b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n"]), ["a", "c"]);
}

#[test]
fn the_last_event_needs_no_blank_line_s08() {
    assert_eq!(data(&[b"data: a\n\ndata: b"]), ["a", "b"]);
    assert_eq!(data(&[b"data: a\n\ndata: b\n"]), ["a", "b"]);
    assert_eq!(data(&[b"data: a\n\n: b"]), ["a"]);
}

#[test]
fn leading_blank_lines_make_no_event() {
    let events = read(&[b"\n\n\n\n\n\ndata: a\n\n"]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].raw, "\n\n\n\n\n\ndata: a\n\n");
}

#[test]
fn an_event_that_never_ends_is_refused_at_the_cap_s10() {
    let mut decoder = Decoder::new();
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let mut refused = 0;
    for _ in 0..2 * EVENT_BYTES_MAX / piece.len() {
        decoder.push(piece.clone());
        match decoder.next_event() {
            Ok(event) => assert_eq!(event, None),
            Err(TooLong) => refused += 1,
        }
    }
    assert_eq!(refused, 1);
    assert_eq!(decoder.finish(), None);
}

#[test]
fn an_event_inside_one_chunk_is_a_slice_of_it() {
    let chunk = Bytes::from_static(b"data: one\n\ndata: two\n\n");
    let mut decoder = Decoder::new();
    decoder.push(chunk.clone());
    let one = decoder.next_event().unwrap().unwrap();
    let two = decoder.next_event().unwrap().unwrap();
    assert_eq!(one.raw.as_ptr(), chunk.as_ptr());
    assert_eq!(two.data.as_ref().unwrap().as_ptr() as usize, chunk.as_ptr() as usize + 17);
    let (mut run, mut out) = (Run::of(chunk.clone()), Vec::new());
    run.pass(&one.raw, &mut out);
    run.pass(&two.raw, &mut out);
    run.flush(&mut out);
    assert_eq!(out, [chunk]);
}

#[test]
fn what_is_dropped_or_made_parts_the_run() {
    let chunk = Bytes::from_static(b"aabbcc");
    let (mut run, mut out) = (Run::of(chunk.clone()), Vec::new());
    run.pass(&chunk.slice(0..2), &mut out);
    run.pass(&chunk.slice(4..6), &mut out);
    run.write(Bytes::from_static(b"made"), &mut out);
    run.pass(&Bytes::from_static(b"other"), &mut out);
    run.flush(&mut out);
    assert_eq!(out, ["aa", "cc", "made", "other"]);
}

/// Lines that matter to the grammar, with the three line ends.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("data: x"),
        Just("data:é世"),
        Just("data"),
        Just(": c"),
        Just(":"),
        Just("id: 1"),
        Just("event: e"),
        Just("retry: 3"),
        Just("odd"),
        Just(""),
        Just(""),
        Just("\u{feff}"),
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
    prop::collection::vec((line, end), 0..40)
        .prop_map(|lines| lines.iter().flat_map(|(l, e)| [*l, *e]).collect::<String>().into_bytes())
}

fn facts(events: &[Event]) -> Vec<(Option<Bytes>, Option<Bytes>, bool)> {
    events.iter().map(|e| (e.name.clone(), e.data.clone(), e.comment)).collect()
}

proptest! {
    #[test]
    fn no_cut_changes_an_event_s01_s18(
        body in streams(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &body[w[0]..w[1]]).collect();
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        let whole = read(&[&body]);
        for cut in [pieces, bytes] {
            let events = read(&cut);
            prop_assert_eq!(facts(&events), facts(&whole));
            // Nor what a pass-through forwards.
            let plain = |all: &[Event]| all.iter().map(Event::plain).collect::<Vec<_>>();
            prop_assert_eq!(plain(&events), plain(&whole));
            let raw = events.iter().map(|e| e.raw.as_ref()).collect::<Vec<_>>().concat();
            prop_assert!(body.starts_with(&raw), "events are the stream's bytes in order");
            let rest = &body[raw.len()..];
            prop_assert!(!rest.windows(4).any(|w| w == b"data"), "no data is left behind");
        }
    }
}

#[test]
fn recorded_streams_read_the_same_at_every_cut_s18() {
    for case in replay::cases("openai-chat").iter().filter(|c| c.kind == "sse") {
        let whole = facts(&read(&[&case.body]));
        for cut in replay::cuts(&case.body) {
            let pieces = replay::pieces(&case.body, &cut);
            let pieces: Vec<&[u8]> = pieces.iter().map(AsRef::as_ref).collect();
            assert_eq!(facts(&read(&pieces)), whole, "{} cut at {cut:?}", case.id);
        }
    }
}
