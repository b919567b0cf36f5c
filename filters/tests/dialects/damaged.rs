//! Recorded streams that were damaged on their way, and events without an end.

use super::random::APIS;
use super::{Filtered, context, filter};
use crate::replay::{self, chat, messages, responses};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use weir_filters::dialect::{Api, Memo};
use weir_filters::wire::{End, Step, Wire};

/// What happens to bytes on their way.
#[derive(Debug, Clone)]
enum Damage {
    Gone(Index, u16),
    Twice(Index, u16),
    Other(Index, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..4),
        "[{}\\[\\],:\"\n\r0-9a-f\\\\]{1,6}".prop_map(String::into_bytes),
        Just(b"\n\n".to_vec()),
        Just(b"data: [DONE]\n\n".to_vec()),
        Just(b"null".to_vec()),
    ];
    prop_oneof![
        (any::<Index>(), 0..300_u16).prop_map(|(at, n)| Damage::Gone(at, n)),
        (any::<Index>(), 0..300_u16).prop_map(|(at, n)| Damage::Twice(at, n)),
        (any::<Index>(), bytes).prop_map(|(at, bytes)| Damage::Other(at, bytes)),
    ]
}

fn damaged(body: &[u8], all: &[Damage]) -> Bytes {
    let mut body = body.to_vec();
    for damage in all.iter().filter(|_| !body.is_empty()).cloned().collect::<Vec<_>>() {
        if body.is_empty() {
            break;
        }
        let range = |at: Index, n: u16| {
            let at = at.index(body.len());
            at..(at + usize::from(n)).min(body.len())
        };
        match damage {
            Damage::Gone(at, n) => drop(body.drain(range(at, n))),
            Damage::Twice(at, n) => {
                let range = range(at, n);
                let copy = body[range.clone()].to_vec();
                body.splice(range.end..range.end, copy);
            }
            Damage::Other(at, bytes) => {
                let at = at.index(body.len());
                body.splice(at..(at + bytes.len()).min(body.len()), bytes);
            }
        }
    }
    body.into()
}

/// Larger recordings only repeat what the smaller ones have.
const SAMPLE_BYTES_MAX: usize = 24 << 10;

fn samples() -> Vec<(Wire, Bytes)> {
    let wires = [
        ("openai-chat", Wire::OpenAi),
        ("anthropic-messages", Wire::Anthropic),
        ("gemini-stream", Wire::Gemini),
        ("bedrock-converse-stream", Wire::Bedrock),
        ("ollama-chat", Wire::Ollama),
    ];
    let of = |(name, wire): (&str, Wire)| {
        let cases = replay::cases(name).into_iter();
        let small = |case: &replay::Case| {
            case.stream && case.status == 200 && case.body.len() <= SAMPLE_BYTES_MAX
        };
        cases.filter(small).map(move |case| (wire, case.body)).collect::<Vec<_>>()
    };
    wires.into_iter().flat_map(of).collect()
}

fn last_error(out: &[u8]) -> Option<usize> {
    let mark = b"data: {\"error\":";
    out.windows(mark.len()).rposition(|window| window == mark)
}

/// What leaves holds to the dialect, whatever came. A call's arguments are the model's own words:
/// damaged ones pass as they are. A choice's index is the provider's too.
fn sound(api: Api, reply: &Filtered) {
    let mut faults = match api {
        Api::Messages => messages::stream(&reply.out, false).faults,
        Api::Responses => responses::stream(&reply.out).faults,
        _ => {
            // The error that ends it is no chunk.
            let error = last_error(&reply.out).filter(|_| !reply.complete);
            let end = error.unwrap_or(reply.out.len());
            chat::stream(&reply.out[..end], false, reply.complete).faults
        }
    };
    faults.retain(|fault| !fault.contains("arguments") && fault != "choice indexes");
    // Damage may turn an event into a comment, and those pass.
    faults.retain(|fault| !fault.contains("an event without data: \":"));
    let out = String::from_utf8_lossy(&reply.out);
    assert!(faults.is_empty(), "{api:?}: {faults:?} in {out}");
}

#[test]
fn a_damaged_recording_ends_once_and_what_leaves_is_well_formed() {
    let samples = samples();
    if samples.is_empty() {
        return;
    }
    let config = ProptestConfig { cases: 600, failure_persistence: None, ..Default::default() };
    let input = (
        any::<Index>(),
        proptest::collection::vec(damage(), 1..5),
        proptest::collection::vec(any::<Index>(), 0..6),
        any::<bool>(),
    );
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let told = runner.run(&input, |(which, damages, cuts, clean)| {
        let (wire, body) = which.get(&samples);
        let body = damaged(body, &damages);
        let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        at.sort_unstable();
        let pieces = replay::pieces(&body, &at);
        for api in APIS {
            sound(api, &filter(api, *wire, Memo::default(), &pieces, clean));
            let _ = api.whole(*wire, &Memo::default(), body.clone(), context());
        }
        Ok(())
    });
    told.unwrap();
}

#[test]
fn an_event_of_fifty_megabytes_ends_every_stream_in_failure() {
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    for (wire, head) in [
        (Wire::OpenAi, "data: {\"id\":\""),
        (Wire::Anthropic, "event: ping\ndata: {\"type\":\""),
        (Wire::Gemini, "data: {\"a\":\""),
        (Wire::Ollama, "{\"model\":\""),
        (Wire::Qianfan, "data: {\"id\":\""),
        (Wire::Cohere, "data: {\"type\":\""),
        (Wire::Bedrock, "\u{7f}\u{7f}\u{7f}\u{7f}\0\0\0\0"),
    ] {
        let mut reply = Api::Chat.stream(wire, Memo::default(), context());
        let (mut ended, mut fed) = (None, 0);
        for n in 0..50 {
            let mut step = Step::default();
            reply.feed(
                if n == 0 { Bytes::from_static(head.as_bytes()) } else { piece.clone() },
                &mut step,
            );
            assert!(step.out.is_empty(), "{wire:?} sends it on");
            if ended.is_none() {
                fed = n;
                ended = step.end;
            }
        }
        assert!(matches!(ended, Some(End::Failed(_))), "{wire:?}");
        assert!(fed <= 17, "{wire:?} held {fed} MB");
    }
}
