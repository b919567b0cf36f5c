//! One scripted provider behind every wire: what to configure, and a short answer in each protocol.

use super::{Action, Provider, Script};
use serde_json::{Value, json};

/// Every wire with the lines its table needs.
pub const WIRES: [(&str, &str); 10] = [
    ("openai", ""),
    ("azure", "api_version = \"2024-10-21\"\n"),
    ("anthropic", ""),
    ("gemini", "auth = \"query:key\"\n"),
    ("ollama", "auth = \"bearer\"\n"),
    ("cohere", ""),
    ("qianfan", ""),
    ("dashscope", ""),
    ("vertex", ""),
    ("bedrock", ""),
];

/// A table for each wire, all of them at one provider, told apart by the front of their paths.
pub fn tables(provider: &Provider, secret: &str) -> String {
    let port = provider.port();
    let table = |(wire, more): &(&str, &str)| {
        format!(
            "[providers.{wire}]\nwire = \"{wire}\"\nbase_url = \"http://127.0.0.1:{port}/{wire}\"\n\
             api_keys = [{{ name = \"main\", value = \"{secret}\" }}]\n{more}"
        )
    };
    WIRES.iter().map(table).collect()
}

/// Says "Hello" in the protocol that is asked, whole.
pub fn hello() -> Script {
    std::sync::Arc::new(|request| {
        let wire = request.path.split('/').nth(1).unwrap_or_default();
        vec![Action::json(200, &answer(wire, &request.path))]
    })
}

fn answer(wire: &str, path: &str) -> Value {
    let vector = json!([0.5, -1.25]);
    let embeds = ["/embed", "mbedContents", "predict", "invoke"];
    if embeds.iter().any(|word| path.contains(word)) {
        return match wire {
            "gemini" => json!({"embeddings": [{"values": vector}]}),
            "vertex" => json!({"predictions": [{"embeddings": {"values": vector}}]}),
            "ollama" => json!({"embeddings": [vector], "prompt_eval_count": 1}),
            "cohere" => json!({"embeddings": {"float": [vector]}}),
            "bedrock" => json!({"embedding": vector, "inputTextTokenCount": 1}),
            "dashscope" => json!({"output": {"embeddings": [
                {"text_index": 0, "embedding": vector}]}, "usage": {"total_tokens": 1}}),
            _ => json!({"object": "list", "model": "e", "data": [
                {"object": "embedding", "index": 0, "embedding": vector}],
                "usage": {"prompt_tokens": 1, "total_tokens": 1}}),
        };
    }
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12});
    let message = json!({"role": "assistant", "content": "Hello"});
    match wire {
        "anthropic" => json!({"id": "msg_1", "type": "message", "role": "assistant",
            "model": "up-model", "content": [{"type": "text", "text": "Hello"}],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 9, "output_tokens": 3}}),
        "gemini" | "vertex" => json!({"candidates": [{"content": {"role": "model",
            "parts": [{"text": "Hello"}]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3,
                              "totalTokenCount": 12}}),
        "ollama" => json!({"model": "up-model", "message": message, "done": true,
            "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 3}),
        "cohere" => json!({"id": "c", "finish_reason": "COMPLETE", "message":
            {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
            "usage": {"tokens": {"input_tokens": 9, "output_tokens": 3}}}),
        "qianfan" => json!({"id": "as-1", "result": "Hello", "is_truncated": false,
            "finish_reason": "normal", "usage": usage}),
        "dashscope" => json!({"request_id": "r", "output": {"choices": [
            {"finish_reason": "stop", "message": message}]},
            "usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}}),
        "bedrock" => json!({"output": {"message": {"role": "assistant",
            "content": [{"text": "Hello"}]}}, "stopReason": "end_turn",
            "usage": {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}}),
        _ => json!({"id": "c", "object": "chat.completion", "created": 1, "model": "up-model",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage}),
    }
}
