//! Inputs that the benchmarks share, so that all of them measure the same thing.

mod wires;

pub use wires::stream as wire_stream;

/// A chat body whose one message is `size` bytes of English.
#[must_use]
pub fn chat_body(size: usize) -> Vec<u8> {
    let text = "lorem ipsum dolor sit amet, ".repeat(size / 28 + 1);
    format!(
        "{{\"model\":\"gpt-4o\",\"stream\":true,\"max_tokens\":256,\
         \"messages\":[{{\"role\":\"user\",\"content\":\"{}\"}}]}}",
        &text[..size]
    )
    .into_bytes()
}

/// A stream of OpenAI chunks, each of one word.
#[must_use]
pub fn openai_stream(words: usize) -> Vec<u8> {
    openai_chunks(" quick", words, false)
}

/// A stream of `events` OpenAI chunks, each with about `size` bytes of English; a provider that
/// tells its usage does it at the end.
#[must_use]
pub fn openai_events(size: usize, events: usize, told: bool) -> Vec<u8> {
    openai_chunks(&"quick brown foxes ".repeat(size.div_ceil(18)), events, told)
}

fn openai_chunks(text: &str, events: usize, told: bool) -> Vec<u8> {
    let event = |rest: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\
             \"created\":1700000000,\"model\":\"gpt-4o\",\"choices\":{rest}}}\n\n"
        )
    };
    let chunk = |delta: &str, finish: &str| {
        event(&format!("[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]"))
    };
    let mut out = chunk(r#"{"role":"assistant","content":""}"#, "null");
    let said = chunk(&format!("{{\"content\":\"{text}\"}}"), "null");
    for _ in 0..events {
        out.push_str(&said);
    }
    out.push_str(&chunk("{}", "\"stop\""));
    if told {
        let usage = r#"{"prompt_tokens":12,"completion_tokens":40,"total_tokens":52}"#;
        out.push_str(&event(&format!("[],\"usage\":{usage}")));
    }
    out.push_str("data: [DONE]\n\n");
    out.into_bytes()
}

/// The same as Anthropic sends it.
#[must_use]
pub fn anthropic_stream(words: usize) -> Vec<u8> {
    let mut out = String::new();
    let mut event = |name: &str, more: &str| {
        out.push_str(&format!("event: {name}\ndata: {{\"type\":\"{name}\"{more}}}\n\n"));
    };
    event(
        "message_start",
        ",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\
         \"model\":\"claude\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\
         \"usage\":{\"input_tokens\":12,\"output_tokens\":1}}",
    );
    event(
        "content_block_start",
        ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}",
    );
    for _ in 0..words {
        let delta = ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" quick\"}";
        event("content_block_delta", delta);
    }
    event("content_block_stop", ",\"index\":0");
    event(
        "message_delta",
        ",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\
         \"usage\":{\"output_tokens\":40}",
    );
    event("message_stop", "");
    out.into_bytes()
}
