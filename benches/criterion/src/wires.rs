//! The same answer as each provider streams it, a word an event.

#[path = "../../../filters/tests/bedrock/frame.rs"]
mod frame;

use frame::frame;

/// A stream of `words` words by the name that config gives a wire; none for a wire without one.
#[must_use]
pub fn stream(wire: &str, words: usize) -> Option<Vec<u8>> {
    Some(match wire {
        "openai" => crate::openai_stream(words),
        "anthropic" => crate::anthropic_stream(words),
        "gemini" => lines("data: ", "\r\n\r\n", &gemini(words)),
        "ollama" => lines("", "\n", &ollama(words)),
        "qianfan" => lines("data: ", "\n\n", &qianfan(words)),
        "dashscope" => {
            lines("id:1\nevent:result\n:HTTP_STATUS/200\ndata:", "\n\n", &dashscope(words))
        }
        "cohere" => lines("data: ", "\n\n", &cohere(words)),
        "bedrock" => bedrock(words),
        _ => return None,
    })
}

fn lines(before: &str, after: &str, events: &[String]) -> Vec<u8> {
    events.iter().flat_map(|event| [before, event, after].concat().into_bytes()).collect()
}

fn repeated(words: usize, word: &str, last: &str) -> Vec<String> {
    let mut out = vec![word.to_owned(); words];
    out.push(last.to_owned());
    out
}

fn gemini(words: usize) -> Vec<String> {
    let chunk = |text: &str, finish: &str| {
        format!(
            "{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\
             \"role\":\"model\"}},{finish}\"index\":0}}],\"usageMetadata\":\
             {{\"promptTokenCount\":12,\"candidatesTokenCount\":40,\"totalTokenCount\":52}},\
             \"modelVersion\":\"gemini-2.5-flash\",\"responseId\":\"r1\"}}"
        )
    };
    repeated(words, &chunk(" quick", ""), &chunk("", "\"finishReason\":\"STOP\","))
}

fn ollama(words: usize) -> Vec<String> {
    let line = |text: &str, more: &str| {
        format!(
            "{{\"model\":\"llama3\",\"created_at\":\"2026-11-30T10:00:00.123456Z\",\"message\":\
             {{\"role\":\"assistant\",\"content\":\"{text}\"}},{more}}}"
        )
    };
    let done = "\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":12,\"eval_count\":40";
    repeated(words, &line(" quick", "\"done\":false"), &line("", done))
}

fn qianfan(words: usize) -> Vec<String> {
    let frame = |text: &str, end: bool| {
        format!(
            "{{\"id\":\"as-1\",\"object\":\"chat.completion\",\"created\":1700000000,\
             \"sentence_id\":1,\"is_end\":{end},\"is_truncated\":false,\"result\":\"{text}\",\
             \"need_clear_history\":false,\"finish_reason\":\"normal\",\"usage\":\
             {{\"prompt_tokens\":12,\"completion_tokens\":40,\"total_tokens\":52}}}}"
        )
    };
    repeated(words, &frame(" quick", false), &frame("", true))
}

fn dashscope(words: usize) -> Vec<String> {
    let frame = |text: &str, finish: &str| {
        format!(
            "{{\"output\":{{\"choices\":[{{\"message\":{{\"content\":\"{text}\",\
             \"role\":\"assistant\"}},\"finish_reason\":\"{finish}\"}}]}},\"usage\":\
             {{\"total_tokens\":52,\"input_tokens\":12,\"output_tokens\":40}},\
             \"request_id\":\"r1\"}}"
        )
    };
    repeated(words, &frame(" quick", "null"), &frame("", "stop"))
}

fn cohere(words: usize) -> Vec<String> {
    let word = "{\"type\":\"content-delta\",\"index\":0,\"delta\":{\"message\":{\"content\":\
                {\"text\":\" quick\"}}}}";
    let end = "{\"type\":\"message-end\",\"delta\":{\"finish_reason\":\"COMPLETE\",\"usage\":\
               {\"tokens\":{\"input_tokens\":12,\"output_tokens\":40}}}}";
    let mut out = vec!["{\"id\":\"c1\",\"type\":\"message-start\"}".to_owned()];
    out.extend(repeated(words, word, end));
    out
}

fn bedrock(words: usize) -> Vec<u8> {
    let word = "{\"contentBlockIndex\":0,\"delta\":{\"text\":\" quick\"},\"p\":\"abcdefghijkl\"}";
    let usage = "{\"metrics\":{\"latencyMs\":900},\"usage\":{\"inputTokens\":12,\
                 \"outputTokens\":40,\"totalTokens\":52}}";
    let mut out = event("messageStart", "{\"role\":\"assistant\"}");
    for _ in 0..words {
        out.extend(event("contentBlockDelta", word));
    }
    out.extend(event("messageStop", "{\"stopReason\":\"end_turn\"}"));
    out.extend(event("metadata", usage));
    out
}

/// An event as AWS frames it.
fn event(kind: &str, payload: &str) -> Vec<u8> {
    let head =
        [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")];
    frame(&head, payload.as_bytes())
}
